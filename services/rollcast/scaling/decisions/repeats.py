"""Runs of one recipe that differ in their seed: fitted together, and how far they stray from each
other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rollcast.scaling.decisions.compare import (
    Triple,
    difference_of_draws,
    quantiles,
    triple,
    with_asymptote,
)
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Array, Curve
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import LAW_PRIOR


@dataclass(frozen=True)
class Repeats:
    """Runs of one recipe.

    Attributes:
        joint: the fit to the points of all of them; its curve's name is the row's.
        alone: the fit of each.
    """

    joint: Forecast
    alone: tuple[Forecast, ...]

    @classmethod
    def from_curves(
        cls, name: str, curves: Sequence[Curve], options: FitOptions | None = None
    ) -> "Repeats":
        """Fit them; by default with the law alone, since asymptotes and exponents are compared.

        Raises:
            ValueError: no curve.
        """
        if not curves:
            raise ValueError(f"recipe {name!r}: no run given; it needs one or more.")
        options = options or FitOptions(prior=LAW_PRIOR)
        alone = tuple(fit(curve, options) for curve in curves)
        joint = alone[0] if len(curves) == 1 else fit(_merge_curves(curves), options)
        return cls(replace(joint, curve=replace(joint.curve, name=name)), alone)

    def with_fixed_asymptote(self, asymptote: float) -> "Repeats":
        """The fits with A held at `asymptote`."""
        joint = with_asymptote(self.joint.curve, asymptote, self.joint.options)
        if len(self.alone) == 1:
            return Repeats(joint, (joint,))
        return Repeats(
            joint, tuple(with_asymptote(run.curve, asymptote, run.options) for run in self.alone)
        )


def _merge_curves(curves: Sequence[Curve]) -> Curve:
    """The points of all curves as one; a column that one of them lacks is unknown for all."""
    starts = [curve.initial for curve in curves if curve.initial is not None]
    errors = [
        curve.initial_standard_error for curve in curves if curve.initial_standard_error is not None
    ]
    return Curve.from_points(
        np.concatenate([curve.compute for curve in curves]),
        np.concatenate([curve.pass_rate for curve in curves]),
        _join_columns([curve.standard_error for curve in curves]),
        initial=float(np.mean(starts)) if starts else None,
        # The standard error of a mean of independent starts.
        initial_standard_error=float(np.sqrt(np.mean(np.square(errors)) / len(errors)))
        if errors
        else None,
        truncation_ratio=_join_columns([curve.truncation_ratio for curve in curves]),
        unit=curves[0].unit,
    )


def _join_columns(columns: Sequence[Array | None]) -> Array | None:
    known_columns = [column for column in columns if column is not None]
    if len(known_columns) < len(columns):
        return None
    return np.concatenate(known_columns)


@dataclass(frozen=True)
class SeedSpread:
    """How far runs of the same recipe stray from each other in one quantity.

    Attributes:
        num_runs: of each recipe, the whole one first.
        standard_deviation: between runs of one recipe, pooled over recipes; 0 if none has two runs.
        freedom: its degrees of freedom.
    """

    num_runs: tuple[int, ...]
    standard_deviation: float
    freedom: int

    @classmethod
    def from_draws(
        cls,
        draws: Sequence[Sequence[Array]],
        null: Sequence[bool],
        pooled: Sequence[bool] | None = None,
    ) -> "SeedSpread":
        """The spread between the medians of runs.

        Args:
            draws: of each run of each recipe, the whole one first.
            null: the recipes that are the whole one in effect; their runs are pooled with the whole
                one's.
            pooled: the recipes whose spread counts; None for all. A law that is held at an
                asymptote far from its own is meaningless, and its runs would stray without bounds.
        """
        medians = [np.array([np.median(run) for run in recipe]) for recipe in draws]
        counts = pooled or [True] * len(medians)
        whole_medians = np.concatenate(
            [
                medians[0],
                *(medians[recipe_index] for recipe_index, is_null in enumerate(null) if is_null),
            ]
        )
        other_medians = [
            medians[place] for place in range(1, len(medians)) if counts[place] and not null[place]
        ]
        groups = [whole_medians, *other_medians]
        freedom = sum(values.size - 1 for values in groups)
        squares = sum(float(np.sum((values - values.mean()) ** 2)) for values in groups)
        deviation = float(np.sqrt(squares / max(freedom, 1)))
        return cls(tuple(values.size for values in medians), deviation, freedom)

    def widened_quantiles(self, joint: Array, recipe_index: int, plain: Array) -> Triple:
        """The quantiles of the recipe at `place`, seeds included.

        `joint`: the draws of its joint fit. `plain`: their own 5 %, median, 95 %.
        """
        if self.freedom == 0:
            return triple(plain)
        return quantiles(joint + self._strays(1.0 / self.num_runs[recipe_index], joint.size))

    def loss(self, joint: Sequence[Array] | Mapping[int, Array], recipe_index: int) -> Triple:
        """By how much the whole recipe, the first, exceeds the one at `place`."""
        lost = difference_of_draws(joint[0], joint[recipe_index])
        return quantiles(
            lost
            + self._strays(1.0 / self.num_runs[0] + 1.0 / self.num_runs[recipe_index], lost.size)
        )

    def _strays(self, variance: float, number: int) -> Array:
        """(number,) deviations of a mean whose variance is this multiple of that of one run."""
        if self.freedom == 0:
            return np.zeros(number)
        noise = np.random.default_rng(1).standard_t(self.freedom, number)
        return np.asarray(self.standard_deviation * np.sqrt(variance) * noise)
