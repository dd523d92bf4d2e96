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
from rollcast.scaling.decisions.repeats import RecipeDraws, Repeats
from rollcast.scaling.decisions.settings import LOG_COMPUTE_RATIO_MARGIN
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
    asymptotes = RecipeDraws.measure(recipes, lambda run: run.draws.asymptote, null)
    shares_ceiling = [
        index == 0 or is_null or not _has_another_ceiling(recipes, index, asymptotes)
        for index, is_null in enumerate(null)
    ]
    # The mean of the median asymptotes of the recipes that share the ceiling.
    shared = [
        np.median(draws)
        for draws, shares in zip(asymptotes.joint, shares_ceiling, strict=True)
        if shares
    ]
    common = float(np.mean(shared))
    fixed_fits = [recipe.with_fixed_asymptote(common) for recipe in recipes]
    level = half_way(fixed_fits[0].joint, common)
    exponents = RecipeDraws.measure(
        fixed_fits, lambda run: run.draws.exponent, null, shares_ceiling
    )
    log_computes = RecipeDraws.measure(
        fixed_fits, lambda run: log_compute_to(run, level), null, shares_ceiling
    )
    rows = []
    for index, (recipe, fixed_fit) in enumerate(zip(recipes, fixed_fits, strict=True)):
        row = _free_fit(recipe, index, asymptotes, exponents, fixed_fit.joint)
        if index > 0:
            row = _with_losses(
                row, index, shares_ceiling[index], asymptotes, exponents, log_computes
            )
        rows.append(replace(row, kind=PartKind.NULL_CONTROL) if null[index] else row)
    return LeaveOneOut(common, level, rows, [recipe.joint for recipe in fixed_fits])


def _has_another_ceiling(
    recipes: Sequence[Repeats], recipe_index: int, asymptotes: RecipeDraws
) -> bool:
    """Whether A differs from that of the whole recipe, and the better one of the two has passed the
    asymptote of the other.
    """
    loss = asymptotes.loss(recipe_index)
    if not is_off_zero(loss, ASYMPTOTE_MARGIN):
        return False
    whole_is_better = loss[1] > 0
    better = recipes[0 if whole_is_better else recipe_index].joint
    reached = better.draws.law([better.curve.compute[-1]])[0]
    if whole_is_better:
        return asymptotes.excess(reached, asymptotes.joint[recipe_index], recipe_index)[0] > 0
    return asymptotes.excess(asymptotes.joint[0], reached, recipe_index)[2] < 0


def _free_fit(
    recipe: Repeats,
    recipe_index: int,
    asymptotes: RecipeDraws,
    exponents: RecipeDraws,
    fixed_fit: Forecast,
) -> Row:
    joint = recipe.joint
    # An asymptote is a pass rate, however far the runs stray.
    asymptote = asymptotes.widened_quantiles(recipe_index, joint.asymptote())
    return Row(
        name=joint.curve.name,
        num_runs=len(recipe.alone),
        asymptote=triple(np.clip(asymptote, 0.0, 1.0)),
        exponent=triple(joint.exponent()),
        midpoint=triple(joint.midpoint()),
        exponent_at_common=exponents.widened_quantiles(recipe_index, fixed_fit.exponent()),
    )


def _with_losses(
    row: Row,
    recipe_index: int,
    shares_ceiling: bool,
    asymptotes: RecipeDraws,
    exponents: RecipeDraws,
    log_computes: RecipeDraws,
) -> Row:
    """The row with what leaving the part out costs."""
    exponent_loss = exponents.loss(recipe_index)
    # ln of the whole recipe's compute half-way up over this one's.
    delay = log_computes.loss(recipe_index)
    kind = PartKind.CANNOT_TELL
    if not shares_ceiling:
        kind = PartKind.CEILING_MOVER
    elif is_off_zero(delay, LOG_COMPUTE_RATIO_MARGIN) or is_off_zero(exponent_loss):
        kind = PartKind.EFFICIENCY_SHAPER
    return replace(
        row,
        asymptote_loss=asymptotes.loss(recipe_index),
        exponent_loss=exponent_loss,
        compute_ratio=triple(np.exp(-np.array(delay[::-1]))) if shares_ceiling else None,
        kind=kind,
    )
