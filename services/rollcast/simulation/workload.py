"""The tasks of a simulated run: lengths of rollouts, as a run measures them, and the share of
filtered groups.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

Lengths = Callable[[random.Random], float]
"""Draws the length of one rollout in tokens, > 0."""
NUM_QUANTILES = 512
"""Quantiles from which the mean of a maximum is computed. Chosen: the error is far below that of a
measured mean."""
_UNIFORM = [(node + 0.5) / NUM_QUANTILES for node in range(NUM_QUANTILES)]


def constant(tokens: float) -> Lengths:
    """Every rollout has `tokens` tokens."""
    return lambda rng: tokens


def lognormal(median: float, sigma: float, budget: float = math.inf) -> Lengths:
    """Lognormal lengths in tokens, cut at the token budget: reasoning models' lengths have such a
    tail.
    """
    location = math.log(median)
    return lambda rng: min(rng.lognormvariate(location, sigma), budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The tasks of a run.

    A task's lengths depend on the seed and its number only, whatever happens around it.
    """

    lengths: Lengths
    rollouts_per_group: int = 1
    """G."""
    filtered: float = 0.0
    """Probability that a group has no variance and is filtered."""
    scale: Callable[[int], float] | None = None
    """Factor of the lengths of the task with a number: answers grow while a model learns. None =
    1."""
    prompt_tokens: float = 0.0
    """Tokens of context before the first token of a rollout."""
    seed: int = 0

    def task(self, number: int) -> "Task":
        """Return the task with that number."""
        rng = random.Random(self.seed * 1_000_003 + number)
        scale = 1.0 if self.scale is None else self.scale(number)
        return Task(
            number=number,
            filtered=rng.random() < self.filtered,
            lengths=tuple(scale * self.lengths(rng) for _ in range(self.rollouts_per_group)),
            prompt_tokens=self.prompt_tokens,
        )


@dataclass(frozen=True, slots=True)
class Task:
    """One prompt to be answered G times."""

    number: int
    filtered: bool
    lengths: tuple[float, ...]
    """[G] tokens of each rollout."""
    prompt_tokens: float = 0.0

    def context(self, remaining: float) -> float:
        """Mean context of a rollout of which `remaining` tokens are to be sampled, as if it were a
        fresh one.
        """
        return self.prompt_tokens + remaining / 2


def lognormal_with_mean(mean: float, sigma: float, budget: float = math.inf) -> Lengths:
    """Lognormal lengths cut at the budget whose mean, the cut included, is `mean` tokens."""
    if sigma <= 0 or mean >= budget:
        return constant(min(mean, budget))
    return lognormal(_median(mean, sigma, budget), sigma, budget)


def fit_spread(
    mean: float, longest: float, rollouts_per_group: int, budget: float = math.inf
) -> float:
    """The lognormal spread (of ln tokens) that gives groups of G rollouts this mean and this mean
    longest rollout.

    `mean` and `longest` in tokens. Rollouts of a group count as independent. 0 if the longest is
    not longer than the mean, and at most 3.
    """
    if rollouts_per_group < 2 or longest <= mean or mean >= budget:
        return 0.0

    def longest_at(sigma: float) -> float:
        return _mean_of_longest(_median(mean, sigma, budget), sigma, budget, rollouts_per_group)

    # ln tokens: upper limit of the search for a spread; nine in ten lengths then differ by up to a
    # factor of 19,000
    return bisect_rising(longest_at, longest, 0.0, 3.0)


def _mean_of_longest(median: float, sigma: float, budget: float, count: int) -> float:
    """Mean of the longest of `count` rollouts, by the quantiles of a maximum."""
    normal = NormalDist()
    total = sum(
        min(median * math.exp(sigma * normal.inv_cdf(u ** (1 / count))), budget) for u in _UNIFORM
    )
    return total / NUM_QUANTILES


def _median(mean: float, sigma: float, budget: float) -> float:
    """The median at which the mean of the cut lengths is `mean`."""
    location = math.log(mean)
    normal = NormalDist()

    def mean_at(log_median: float) -> float:
        if math.isinf(budget):
            return math.exp(log_median + sigma**2 / 2)
        if sigma == 0:
            return min(math.exp(log_median), budget)
        cut = (math.log(budget) - log_median) / sigma
        return math.exp(log_median + sigma**2 / 2) * normal.cdf(cut - sigma) + budget * (
            1 - normal.cdf(cut)
        )

    return math.exp(bisect_rising(mean_at, mean, location - sigma**2, location + 20 * sigma + 1))


def bisect_rising(rising: Callable[[float], float], value: float, low: float, high: float) -> float:
    """The argument at which a rising function has this value."""
    # Halvings of an interval: more than the 53 bits of a double
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < value:
            low = middle
        else:
            high = middle
    return (low + high) / 2
