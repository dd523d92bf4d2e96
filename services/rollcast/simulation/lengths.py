"""Lengths of rollouts from what a run measures: their mean, and the mean of each group's longest."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

from rollcast.simulation.workload import Lengths, constant, lognormal

NODES = 512
WIDEST = 3.0
"""Largest spread that is looked for, in ln tokens."""
_UNIFORM = [(node + 0.5) / NODES for node in range(NODES)]


def lognormal_with_mean(mean: float, sigma: float, budget: float = math.inf) -> Lengths:
    """Lognormal lengths cut at the budget whose mean, the cut included, is `mean` tokens."""
    if sigma <= 0 or mean >= budget:
        return constant(min(mean, budget))
    return lognormal(_median(mean, sigma, budget), sigma, budget)


def spread_of(mean: float, longest: float, rollouts_per_group: int, budget: float = math.inf) -> float:
    """The lognormal spread (of ln tokens) at which groups of G rollouts of that mean have that mean longest rollout.

    `mean` and `longest` in tokens. Rollouts of a group are taken as independent. 0 where the longest is no longer than
    the mean, at most 3.
    """
    if rollouts_per_group < 2 or longest <= mean or mean >= budget:
        return 0.0

    def longest_at(sigma: float) -> float:
        return _mean_of_longest(_median(mean, sigma, budget), sigma, budget, rollouts_per_group)

    return _bisect(longest_at, longest, 0.0, WIDEST)


def _mean_of_longest(median: float, sigma: float, budget: float, count: int) -> float:
    """Mean of the longest of `count` rollouts, by the quantiles of a maximum."""
    normal = NormalDist()
    total = sum(min(median * math.exp(sigma * normal.inv_cdf(u ** (1 / count))), budget) for u in _UNIFORM)
    return total / NODES


def _median(mean: float, sigma: float, budget: float) -> float:
    """The median at which the mean of the cut lengths is `mean`."""
    location, normal = math.log(mean), NormalDist()

    def mean_at(log_median: float) -> float:
        if math.isinf(budget):
            return math.exp(log_median + sigma**2 / 2)
        if sigma == 0:
            return min(math.exp(log_median), budget)
        cut = (math.log(budget) - log_median) / sigma
        return math.exp(log_median + sigma**2 / 2) * normal.cdf(cut - sigma) + budget * (1 - normal.cdf(cut))

    return math.exp(_bisect(mean_at, mean, location - sigma**2, location + 20 * sigma + 1))


def _bisect(rising: Callable[[float], float], value: float, low: float, high: float) -> float:
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < value:
            low = middle
        else:
            high = middle
    return (low + high) / 2
