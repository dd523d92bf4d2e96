"""Leave-one-out tables (Fig 7 of arXiv 2510.13786): what each part of a recipe is worth.

One or more runs of the whole recipe, and as many without each part. The asymptotes are reported as fitted. Efficiency
is compared with A held at one value for every recipe: the mean of the fitted asymptotes of the whole recipe and of
those that share its ceiling. Efficiency has two signs. One is B, the paper's. The other is the compute that the law
takes half-way up: it sees what B cannot, a recipe that goes the same way in twice the compute.

    ceiling mover       leaving the part out moves A by more than the paper's margin of 0.02; the 90 % interval does not
                        hold 0; and one recipe has already passed the other one's ceiling
    efficiency shaper   it does not; but at the common A it moves the compute half-way up by more than a tenth, or B,
                        and the 90 % interval does not hold "no change"
    cannot tell         neither
    null control        nothing was left out in effect; whatever the row shows is noise

Why a ceiling must be passed: slow recipes would else be taken for bad ones. No run follows the law exactly, and an A
that is forecast from the lower part of a curve is often some hundredths too low. At the same compute that is the slower
one's.

Runs of one recipe are fitted together: one law, the prior counted once. Each is also fitted alone, which shows by how
much runs of a recipe differ. That spread is pooled over the recipes of the table (of efficiency: over those that share
the ceiling) and widens every interval (Student's t). So a difference that two runs of the same recipe may show counts
as none. Null controls are runs of the whole recipe under another name, and count as such.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from rollcast.scaling.decisions.compare import (
    COMPUTE_MARGIN,
    Triple,
    difference_of_draws,
    exponentials,
    half_way,
    is_off_zero,
    log_compute_to,
    quantiles,
    with_asymptote,
)
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import MARGIN, Array, Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR


class PartKind(StrEnum):
    """What a part of the recipe does."""

    CEILING_MOVER = "ceiling mover"
    EFFICIENCY_SHAPER = "efficiency shaper"
    CANNOT_TELL = "cannot tell"
    NULL_CONTROL = "null control: no difference here"


@dataclass(frozen=True)
class Repeats:
    """Runs of one recipe that differ in their seed.

    Attributes:
        joint: the fit to the points of all of them; its curve's name is the row's.
        alone: the fit of each.
    """

    joint: Forecast
    alone: tuple[Forecast, ...]

    @classmethod
    def of(cls, name: str, curves: Sequence[Curve], options: FitOptions | None = None) -> Repeats:
        """Fit them; by default with the law alone, since asymptotes and exponents are compared.

        Raises:
            ValueError: no curve.
        """
        if not curves:
            raise ValueError(f"recipe {name!r}: no run given; it needs one or more.")
        options = options or FitOptions(prior=LAW_PRIOR)
        alone = tuple(fit(curve, options) for curve in curves)
        joint = alone[0] if len(curves) == 1 else fit(_merged(curves), options)
        return cls(replace(joint, curve=replace(joint.curve, name=name)), alone)

    def held(self, asymptote: float) -> Repeats:
        """The same with A held."""
        joint = with_asymptote(self.joint.curve, asymptote, self.joint.options)
        if len(self.alone) == 1:
            return Repeats(joint, (joint,))
        return Repeats(joint, tuple(with_asymptote(run.curve, asymptote, run.options) for run in self.alone))


@dataclass(frozen=True)
class Row:
    """One recipe without a part, or the whole one; triples are (5 %, median, 95 %).

    Attributes:
        num_runs: of this recipe.
        asymptote, exponent, midpoint: of the free fit.
        exponent_at_common: B with A held at the common asymptote.
        asymptote_loss: A of the whole recipe minus this one's A; what leaving the part out costs. None for the whole.
        exponent_loss: the same of B at the common asymptote.
        compute_ratio: compute that this recipe takes half-way up over what the whole one takes; above 1 is slower. None
            for the whole, and where the ceiling is another: there is no common way up.
        kind: of the part that is left out; None for the whole.
    """

    name: str
    num_runs: int
    asymptote: Triple
    exponent: Triple
    midpoint: Triple
    exponent_at_common: Triple
    asymptote_loss: Triple | None = None
    exponent_loss: Triple | None = None
    compute_ratio: Triple | None = None
    kind: PartKind | None = None


@dataclass(frozen=True)
class LeaveOneOut:
    """The table; the whole recipe is the first row.

    Attributes:
        half_way: the pass rate at which compute is compared, half-way from the whole recipe's start to the common A.
        at_common: the fits with A held at `common_asymptote`, in the order of the rows.
    """

    common_asymptote: float
    half_way: float
    rows: list[Row]
    at_common: list[Forecast]


def leave_one_out(
    whole: Forecast | Repeats,
    without: Sequence[Forecast | Repeats],
    common_asymptote: float | None = None,
    *,
    null_controls: Collection[str] = (),
) -> LeaveOneOut:
    """The table of `whole` and of each recipe of `without`; their curves' names are the rows' names.

    `common_asymptote`: held instead of the mean of the medians. `null_controls`: names of the recipes of `without` that
    are the whole one in effect.

    Raises:
        ValueError: no recipe without a part.
    """
    if not without:
        raise ValueError(
            "without: no run given; leave-one-out needs the whole recipe and at least one run without a part."
        )
    recipes = [run if isinstance(run, Repeats) else Repeats(run, (run,)) for run in (whole, *without)]
    null = [recipe.joint.curve.name in null_controls for recipe in recipes]
    asymptotes = _Estimates.of([[run.draws.asymptote for run in recipe.alone] for recipe in recipes], null)
    free = [recipe.joint.draws.asymptote for recipe in recipes]
    losses = [asymptotes.loss(free, place) for place in range(1, len(recipes))]
    moved = [
        not null[place] and is_off_zero(loss, MARGIN) and _is_passed(recipes, place, asymptotes, falls=loss[1] > 0)
        for place, loss in enumerate(losses, start=1)
    ]
    shared = [free[0], *(draws for draws, is_mover in zip(free[1:], moved, strict=True) if not is_mover)]
    common = common_asymptote or float(np.mean([np.median(draws) for draws in shared]))
    held = [recipe.held(common) for recipe in recipes]
    level = half_way(held[0].joint, common)
    comparable = [True, *(not is_mover for is_mover in moved)]
    exponents = _Estimates.of([[run.draws.exponent for run in recipe.alone] for recipe in held], null, comparable)
    delays = _Estimates.of([[log_compute_to(run, level) for run in recipe.alone] for recipe in held], null, comparable)
    slopes = [recipe.joint.draws.exponent for recipe in held]
    times = [log_compute_to(recipe.joint, level) for recipe in held]
    rows = []
    for place, recipe in enumerate(recipes):
        row = Row(
            name=recipe.joint.curve.name,
            num_runs=len(recipe.alone),
            asymptote=_capped(asymptotes.widened(free[place], place, recipe.joint.asymptote())),
            exponent=_triple(recipe.joint.exponent()),
            midpoint=_triple(recipe.joint.midpoint()),
            exponent_at_common=exponents.widened(slopes[place], place, held[place].joint.exponent()),
        )
        if place > 0:
            row = _judged(
                row, losses[place - 1], moved[place - 1], exponents.loss(slopes, place), delays.loss(times, place)
            )
        if null[place]:
            row = replace(row, kind=PartKind.NULL_CONTROL)
        rows.append(row)
    return LeaveOneOut(common, level, rows, [recipe.joint for recipe in held])


@dataclass(frozen=True)
class _Estimates:
    """One quantity of every recipe: how many runs each has, and how far runs of the same recipe stray.

    Attributes:
        num_runs: of each recipe.
        spread: standard deviation between runs of one recipe, pooled over recipes; 0 where none has two.
        freedom: its degrees of freedom.
    """

    num_runs: tuple[int, ...]
    spread: float
    freedom: int

    @classmethod
    def of(
        cls, draws: Sequence[Sequence[Array]], null: Sequence[bool], pooled: Sequence[bool] | None = None
    ) -> _Estimates:
        """From the draws of each run of each recipe, the whole one first.

        `null`: those that are the whole one in effect; their runs are pooled with its. `pooled`: those whose spread
        counts, all unless given: a law that is held at an asymptote far from its own says nothing, and its runs would
        stray without bounds.
        """
        medians = [np.array([np.median(run) for run in recipe]) for recipe in draws]
        counts = pooled or [True] * len(medians)
        of_whole = np.concatenate([medians[0], *(medians[place] for place, is_null in enumerate(null) if is_null)])
        others = [medians[place] for place in range(1, len(medians)) if counts[place] and not null[place]]
        counting = [of_whole, *others]
        freedom = sum(values.size - 1 for values in counting)
        squares = sum(float(np.sum((values - values.mean()) ** 2)) for values in counting)
        return cls(tuple(values.size for values in medians), float(np.sqrt(squares / max(freedom, 1))), freedom)

    def widened(self, joint: Array, place: int, plain: Array) -> Triple:
        """Of the recipe at `place`, from the draws of its joint fit; `plain`: their own 5 %, median, 95 %."""
        if self.freedom == 0:
            return _triple(plain)
        return quantiles(joint + self._strays(1.0 / self.num_runs[place], joint.size))

    def loss(self, joint: Sequence[Array] | Mapping[int, Array], place: int) -> Triple:
        """What the whole recipe, the first, has more than the one at `place`."""
        lost = difference_of_draws(joint[0], joint[place])
        return quantiles(lost + self._strays(1.0 / self.num_runs[0] + 1.0 / self.num_runs[place], lost.size))

    def _strays(self, variance: float, number: int) -> Array:
        if self.freedom == 0:
            return np.zeros(number)
        noise = np.random.default_rng(1).standard_t(self.freedom, number)
        return np.asarray(self.spread * np.sqrt(variance) * noise)


def _merged(curves: Sequence[Curve]) -> Curve:
    """The points of all curves as one; what one of them does not tell is unknown."""

    def together(parts: Sequence[Array | None]) -> Array | None:
        known = [part for part in parts if part is not None]
        return np.concatenate(known) if len(known) == len(parts) else None

    starts = [curve.initial for curve in curves if curve.initial is not None]
    errors = [curve.initial_standard_error for curve in curves if curve.initial_standard_error is not None]
    return Curve.from_points(
        np.concatenate([curve.compute for curve in curves]),
        np.concatenate([curve.pass_rate for curve in curves]),
        together([curve.standard_error for curve in curves]),
        initial=float(np.mean(starts)) if starts else None,
        initial_standard_error=float(np.sqrt(np.mean(np.square(errors)) / len(errors))) if errors else None,
        truncation_ratio=together([curve.truncation_ratio for curve in curves]),
        unit=curves[0].unit,
    )


def _is_passed(recipes: Sequence[Repeats], place: int, asymptotes: _Estimates, *, falls: bool) -> bool:
    """Whether the better one of the whole recipe and the one at `place` has passed the asymptote of the other.

    `falls`: whether it is the whole recipe that is better.
    """
    better, worse = (0, place) if falls else (place, 0)
    reached = recipes[better].joint.draws.law([recipes[better].joint.curve.compute[-1]])[0]
    gap = asymptotes.loss({better: reached, worse: recipes[worse].joint.draws.asymptote}, place)
    return gap[0] > 0 if falls else gap[2] < 0


def _judged(row: Row, asymptote_loss: Triple, is_mover: bool, exponent_loss: Triple, delay: Triple) -> Row:
    """`delay`: ln of the whole recipe's compute half-way up over this one's."""
    if is_mover:
        kind = PartKind.CEILING_MOVER
    elif is_off_zero(delay, COMPUTE_MARGIN) or is_off_zero(exponent_loss):
        kind = PartKind.EFFICIENCY_SHAPER
    else:
        kind = PartKind.CANNOT_TELL
    ratio = None if is_mover else exponentials((-delay[2], -delay[1], -delay[0]))
    return replace(row, asymptote_loss=asymptote_loss, exponent_loss=exponent_loss, compute_ratio=ratio, kind=kind)


def _capped(interval: Triple) -> Triple:
    """An asymptote is a pass rate, whatever the runs stray by."""
    low, median, high = np.clip(interval, 0.0, 1.0)
    return float(low), float(median), float(high)


def _triple(values: Array) -> Triple:
    return float(values[0]), float(values[1]), float(values[2])
