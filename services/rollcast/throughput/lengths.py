"""Moments of completion lengths: lognormal, cut at the token budget.

    E[min(L, B)^n] = exp(n m + n^2 s^2 / 2) Phi((ln B - m) / s - n s)
                     + B^n (1 - Phi((ln B - m) / s))

m is the mean of ln L and s its standard deviation, B the budget, Phi the normal distribution
function.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from rollcast.simulation.workload import bisect_rising

NUM_QUANTILES = 256
"""Quantiles from which the mean of a group's longest completion is computed. Chosen: the error is
below 1 %."""
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class CutLengths:
    """Lengths of completions in tokens."""

    location: float
    """m, in ln tokens."""
    spread: float
    """s, in ln tokens. > 0."""
    budget: float
    """B, in tokens."""

    def moment(self, order: int) -> float:
        """E[min(L, B)^order]."""
        cut = (math.log(self.budget) - self.location) / self.spread
        uncut_moment = math.exp(order * self.location + (order * self.spread) ** 2 / 2)
        return (
            uncut_moment * _NORMAL.cdf(cut - order * self.spread)
            + self.budget**order * self.cut_share
        )

    @property
    def cut_share(self) -> float:
        """Share of the completions that reach the budget."""
        return 1.0 - _NORMAL.cdf((math.log(self.budget) - self.location) / self.spread)

    @property
    def mean(self) -> float:
        return self.moment(1)

    @property
    def mean_position(self) -> float:
        """Mean position of a token in its completion.

        Also the mean number of tokens of a running rollout.
        """
        return self.moment(2) / (2 * self.moment(1))

    @property
    def variance_of_running(self) -> float:
        """Variance of the number of tokens that a running rollout has."""
        return self.moment(3) / (3 * self.moment(1)) - self.mean_position**2

    def mean_of_longest(self, count: int) -> float:
        """Mean length of the longest of `count` completions."""
        total = 0.0
        for node in range(NUM_QUANTILES):
            quantile = _NORMAL.inv_cdf(((node + 0.5) / NUM_QUANTILES) ** (1 / count))
            total += min(math.exp(self.location + self.spread * quantile), self.budget)
        return total / NUM_QUANTILES


def lengths_with_mean(mean: float, spread: float, budget: float) -> CutLengths:
    """The lengths whose mean, the cut included, is `mean` tokens.

    `mean` must be less than `budget`.
    """

    def mean_at(location: float) -> float:
        return CutLengths(location, spread, budget).mean

    low = math.log(mean) - spread**2
    high = math.log(budget) + 20 * spread
    return CutLengths(bisect_rising(mean_at, mean, low, high), spread, budget)
