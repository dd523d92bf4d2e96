"""Runs of one recipe that differ in their seed: fitted together, and how far they stray from each
other.
"""

from collections.abc import Callable, Sequence
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
        runs = (self.joint, *self.alone) if len(self.alone) > 1 else (self.joint,)
        joint, *alone = (with_asymptote(run.curve, asymptote, run.options) for run in runs)
        return Repeats(joint, tuple(alone) or (joint,))


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
class RecipeDraws:
    """One quantity of every recipe, and how far runs of the same recipe stray from each other in
    it.

    Attributes:
        joint: draws of the joint fits, by recipe, the whole one first.
        num_runs: of each recipe.
        standard_deviation: between runs of one recipe, pooled over recipes; 0 if none has two runs.
        freedom: its degrees of freedom.
    """

    joint: list[Array]
    num_runs: list[int]
    standard_deviation: float
    freedom: int

    @classmethod
    def measure(
        cls,
        recipes: Sequence[Repeats],
        quantity: Callable[[Forecast], Array],
        null: Sequence[bool],
        pooled: Sequence[bool] | None = None,
    ) -> "RecipeDraws":
        """The draws, and the spread between the medians of runs.

        Args:
            recipes: the whole one first.
            quantity: its draws, given a fit.
            null: the recipes that are the whole one in effect; their runs are pooled with the whole
                one's.
            pooled: the recipes whose spread counts; None for all. A law that is held at an
                asymptote far from its own is meaningless, and its runs would stray without bounds.
        """
        medians = [
            np.array([np.median(quantity(run)) for run in recipe.alone]) for recipe in recipes
        ]
        counts = pooled or [True] * len(medians)
        null_medians = [medians[index] for index, is_null in enumerate(null) if is_null]
        other_medians = [
            medians[index] for index in range(1, len(medians)) if counts[index] and not null[index]
        ]
        groups = [np.concatenate([medians[0], *null_medians]), *other_medians]
        freedom = sum(values.size - 1 for values in groups)
        squares = sum(float(np.sum((values - values.mean()) ** 2)) for values in groups)
        return cls(
            joint=[quantity(recipe.joint) for recipe in recipes],
            num_runs=[values.size for values in medians],
            standard_deviation=float(np.sqrt(squares / max(freedom, 1))),
            freedom=freedom,
        )

    def widened_quantiles(self, recipe_index: int, plain: Array) -> Triple:
        """The quantiles of one recipe, seeds included.

        `plain`: 5 %, median, 95 % of its draws.
        """
        if self.freedom == 0:
            return triple(plain)
        joint = self.joint[recipe_index]
        return quantiles(joint + self._strays(1.0 / self.num_runs[recipe_index], joint.size))

    def loss(self, recipe_index: int) -> Triple:
        """By how much the whole recipe, the first, exceeds this one."""
        return self.excess(self.joint[0], self.joint[recipe_index], recipe_index)

    def excess(self, whole_draws: Array, recipe_draws: Array, recipe_index: int) -> Triple:
        """By how much draws of the whole recipe exceed those of this one."""
        lost = difference_of_draws(whole_draws, recipe_draws)
        variance = 1.0 / self.num_runs[0] + 1.0 / self.num_runs[recipe_index]
        return quantiles(lost + self._strays(variance, lost.size))

    def _strays(self, variance: float, number: int) -> Array:
        """(number,) deviations of a mean whose variance is this multiple of that of one run."""
        if self.freedom == 0:
            return np.zeros(number)
        noise = np.random.default_rng(1).standard_t(self.freedom, number)
        return np.asarray(self.standard_deviation * np.sqrt(variance) * noise)
