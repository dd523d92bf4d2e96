"""Leave-one-out tables (Fig 7 of arXiv 2510.13786): what each part of a recipe is worth.

One or more runs of the whole recipe, and as many without each part. The asymptotes are reported as
fitted. Efficiency is compared with A held at one value for every recipe: the mean of the fitted
asymptotes of the whole recipe and of those that share its ceiling. Efficiency has two signs: B, the
paper's, and the compute that the law takes half-way up.

    ceiling mover       leaving the part out moves A by more than the paper's margin of 0.02; the
                        90 % interval excludes 0; and one recipe has already passed the other one's
                        ceiling
    efficiency shaper   it does not; but at the common A it moves the compute half-way up by more
                        than a tenth, or B, and the 90 % interval excludes "no change"
    cannot tell         neither
    null control        nothing was left out in effect; whatever the row shows is noise

A ceiling must be passed because an A that is forecast from the lower part of a curve, as a slow
recipe's is, is often some hundredths too low. Runs of one recipe are fitted together, and each
alone: the spread of these is pooled over the recipes of the table (for efficiency: over those that
share the ceiling) and widens every interval (Student's t). Null controls are runs of the whole
recipe under another name, and count as such.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from rollcast.scaling.decisions.compare import Triple, half_way, is_off_zero, log_compute_to, triple
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.repeats import Repeats, SeedSpread
from rollcast.scaling.decisions.settings import LOG_COMPUTE_RATIO_MARGIN
from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.settings import ASYMPTOTE_MARGIN


class PartKind(StrEnum):
    """The effect of a part of the recipe."""

    CEILING_MOVER = "ceiling mover"
    EFFICIENCY_SHAPER = "efficiency shaper"
    CANNOT_TELL = "cannot tell"
    NULL_CONTROL = "null control: no difference here"


@dataclass(frozen=True)
class Row:
    """One recipe without a part, or the whole one; triples are (5 %, median, 95 %).

    Attributes:
        num_runs: of this recipe.
        asymptote, exponent, midpoint: of the free fit.
        exponent_at_common: B with A held at the common asymptote.
        asymptote_loss: A of the whole recipe minus this one's A; what leaving the part out costs.
            None for the whole.
        exponent_loss: the same of B at the common asymptote.
        compute_ratio: compute that this recipe takes half-way up over what the whole one takes;
            above 1 is slower. None for the whole, and for another ceiling: there is no common way
            up.
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
        half_way: the pass rate at which compute is compared, half-way from the whole recipe's start
            to the common A.
        at_common: the fits with A held at `common_asymptote`, in the order of the rows.
    """

    common_asymptote: float
    half_way: float
    rows: list[Row]
    at_common: list[Forecast]


def leave_one_out(
    whole_recipe: Forecast | Repeats,
    without: Sequence[Forecast | Repeats],
    *,
    null_controls: Collection[str] = (),
) -> LeaveOneOut:
    """The table of `whole_recipe` and of each recipe of `without`; their curves' names are the
    rows' names.

    `null_controls`: names of the recipes of `without` that are the whole one in effect.

    Raises:
        ValueError: no recipe without a part.
    """
    if not without:
        raise ValueError(
            "without: no run given; leave-one-out needs the whole recipe and at least one run "
            "without a part."
        )
    recipes = [
        run if isinstance(run, Repeats) else Repeats(run, (run,))
        for run in (whole_recipe, *without)
    ]
    null = [recipe.joint.curve.name in null_controls for recipe in recipes]
    ceilings = _ceilings(recipes, null)
    # The mean of the median asymptotes of the recipes that share the ceiling.
    shared = [
        draws for draws, moves in zip(ceilings.draws, ceilings.moves, strict=True) if not moves
    ]
    common = float(np.mean([np.median(draws) for draws in shared]))
    speeds = _speeds(recipes, null, ceilings, common)
    rows = []
    for recipe_index, is_null in enumerate(null):
        row = _row(recipes, recipe_index, ceilings, speeds)
        rows.append(replace(row, kind=PartKind.NULL_CONTROL) if is_null else row)
    return LeaveOneOut(common, speeds.level, rows, [recipe.joint for recipe in speeds.fixed_fits])


@dataclass(frozen=True)
class _Ceilings:
    """The asymptotes of all recipes, the whole one first.

    Attributes:
        draws: of A, by recipe.
        spread: between runs of one recipe.
        losses: of A by each recipe without a part, so one fewer than recipes.
        moves: whether the recipe has another ceiling than the whole one.
    """

    draws: list[Array]
    spread: SeedSpread
    losses: list[Triple]
    moves: list[bool]


def _ceilings(recipes: Sequence[Repeats], null: Sequence[bool]) -> _Ceilings:
    spread = SeedSpread.from_draws(
        [[run.draws.asymptote for run in recipe.alone] for recipe in recipes], null
    )
    draws = [recipe.joint.draws.asymptote for recipe in recipes]
    losses = [spread.loss(draws, recipe_index) for recipe_index in range(1, len(recipes))]
    moves = [False]
    for place, loss in enumerate(losses, start=1):
        differs = not null[place] and is_off_zero(loss, ASYMPTOTE_MARGIN)
        moves.append(differs and _is_passed(recipes, place, spread, whole_is_better=loss[1] > 0))
    return _Ceilings(draws, spread, losses, moves)


def _is_passed(
    recipes: Sequence[Repeats], recipe_index: int, asymptotes: SeedSpread, *, whole_is_better: bool
) -> bool:
    """Whether the better one of the whole recipe and the one at `place` has passed the asymptote of
    the other.
    """
    better, worse = (0, recipe_index) if whole_is_better else (recipe_index, 0)
    last = recipes[better].joint.curve.compute[-1]
    reached = recipes[better].joint.draws.law([last])[0]
    gap = asymptotes.loss(
        {better: reached, worse: recipes[worse].joint.draws.asymptote}, recipe_index
    )
    if whole_is_better:
        return gap[0] > 0
    return gap[2] < 0


@dataclass(frozen=True)
class _Speeds:
    """The efficiency of all recipes with A held at the common value, the whole one first.

    Attributes:
        fixed_fits: the fits.
        level: the pass rate half-way up.
        exponents: draws of B, by recipe.
        exponent_spread: of B between runs of one recipe.
        log_computes: draws of ln of the compute half-way up, by recipe.
        log_compute_spread: the spread of these.
    """

    fixed_fits: list[Repeats]
    level: float
    exponents: list[Array]
    exponent_spread: SeedSpread
    log_computes: list[Array]
    log_compute_spread: SeedSpread


def _speeds(
    recipes: Sequence[Repeats], null: Sequence[bool], ceilings: _Ceilings, common: float
) -> _Speeds:
    fixed_fits = [recipe.with_fixed_asymptote(common) for recipe in recipes]
    level = half_way(fixed_fits[0].joint, common)
    shares_ceiling = [not moves for moves in ceilings.moves]
    exponents = [[run.draws.exponent for run in recipe.alone] for recipe in fixed_fits]
    log_computes = [[log_compute_to(run, level) for run in recipe.alone] for recipe in fixed_fits]
    return _Speeds(
        fixed_fits=fixed_fits,
        level=level,
        exponents=[recipe.joint.draws.exponent for recipe in fixed_fits],
        exponent_spread=SeedSpread.from_draws(exponents, null, shares_ceiling),
        log_computes=[log_compute_to(recipe.joint, level) for recipe in fixed_fits],
        log_compute_spread=SeedSpread.from_draws(log_computes, null, shares_ceiling),
    )


def _row(
    recipes: Sequence[Repeats], recipe_index: int, ceilings: _Ceilings, speeds: _Speeds
) -> Row:
    recipe = recipes[recipe_index]
    joint = recipe.joint
    # An asymptote is a pass rate, however far the runs stray.
    asymptote = ceilings.spread.widened_quantiles(
        ceilings.draws[recipe_index], recipe_index, joint.asymptote()
    )
    row = Row(
        name=joint.curve.name,
        num_runs=len(recipe.alone),
        asymptote=triple(np.clip(asymptote, 0.0, 1.0)),
        exponent=triple(joint.exponent()),
        midpoint=triple(joint.midpoint()),
        exponent_at_common=speeds.exponent_spread.widened_quantiles(
            speeds.exponents[recipe_index],
            recipe_index,
            speeds.fixed_fits[recipe_index].joint.exponent(),
        ),
    )
    if recipe_index == 0:
        return row
    exponent_loss = speeds.exponent_spread.loss(speeds.exponents, recipe_index)
    # ln of the whole recipe's compute half-way up over this one's.
    delay = speeds.log_compute_spread.loss(speeds.log_computes, recipe_index)
    moves = ceilings.moves[recipe_index]
    if moves:
        kind = PartKind.CEILING_MOVER
    elif is_off_zero(delay, LOG_COMPUTE_RATIO_MARGIN) or is_off_zero(exponent_loss):
        kind = PartKind.EFFICIENCY_SHAPER
    else:
        kind = PartKind.CANNOT_TELL
    return replace(
        row,
        asymptote_loss=ceilings.losses[recipe_index - 1],
        exponent_loss=exponent_loss,
        compute_ratio=None if moves else triple(np.exp(-np.array(delay[::-1]))),
        kind=kind,
    )
