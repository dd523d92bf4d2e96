"""The budget at which the best model size changes, with its interval.

In each draw of the law ln L falls along a straight line in ln X, steeper for the larger model. Two
sizes a < b therefore cross once, at e_1 (ln b - ln a) = (k(b) - k(a)) ln X: below that budget a is
better, above it b. The quantiles of the crossings over the draws are the interval of the budget at
which the choice changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from rollcast.scaling.law.curve import Array
from rollcast.scaling.law.model_size import ModelSizeLaw
from rollcast.scaling.law.settings import MAX_LOG_BUDGET


@dataclass(frozen=True)
class SizeChange:
    """The change from one size to a larger one as the budget grows.

    Attributes:
        smaller, larger: positions in the list of sizes.
        budget: (5 %, median, 95 %) in device-hours; 0 if the larger one is better at any budget,
            inf if it never is.
    """

    smaller: int
    larger: int
    budget: tuple[float, float, float]


def crossing(
    law: ModelSizeLaw, smaller: float, larger: float, quantiles: Sequence[float] = (0.05, 0.5, 0.95)
) -> Array:
    """Device-hours from which `larger` parameters are better than `smaller` -> (q,); 0 = always,
    inf = never.

    Raises:
        ValueError: the sizes are not in order.
    """
    if not 0 < smaller < larger:
        raise ValueError(f"sizes: {smaller:g} and {larger:g} are not in ascending order.")
    ahead = law.size_slope * np.log(larger / smaller)
    faster = law.efficiency / (1.0 + law.saturation / larger) - law.efficiency / (
        1.0 + law.saturation / smaller
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        log_budget = np.where(faster > 1e-12, ahead / faster, np.where(ahead > 0, np.inf, -np.inf))
    ordered = np.sort(log_budget)[
        np.rint(np.asarray(quantiles) * (log_budget.size - 1)).astype(int)
    ]
    budget = np.exp(np.clip(ordered, -MAX_LOG_BUDGET, MAX_LOG_BUDGET))
    return np.asarray(
        np.where(ordered > MAX_LOG_BUDGET, np.inf, np.where(ordered < -MAX_LOG_BUDGET, 0.0, budget))
    )


def size_changes(
    law: ModelSizeLaw, sizes: Sequence[float], low: float, high: float
) -> list[SizeChange]:
    """The budgets between `low` and `high` device-hours at which the best of `sizes` changes,
    ascending.
    """
    # 2000: budgets at which the best model size is looked up, in equal steps of ln; chosen, not
    # measured.
    best = [position for _, position in law.switches(sizes, np.geomspace(low, high, 2000))]
    changes = []
    for previous_best, next_best in pairwise(best):
        smaller, larger = sorted((previous_best, next_best), key=lambda position: sizes[position])
        quantiles = crossing(law, sizes[smaller], sizes[larger])
        changes.append(
            SizeChange(
                smaller, larger, (float(quantiles[0]), float(quantiles[1]), float(quantiles[2]))
            )
        )
    return changes
