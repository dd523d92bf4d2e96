"""How figures of many runs become one: within a repository first, because its runs share model,
task and prompts.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """How often something held."""

    held: int
    of: int

    def __str__(self) -> str:
        return f"{self.held} of {self.of}"

    @classmethod
    def count(cls, holds: Iterable[bool]) -> Tally:
        values = list(holds)
        return cls(sum(values), len(values))

    @classmethod
    def total(cls, tallies: Iterable[Tally]) -> Tally:
        values = list(tallies)
        return cls(sum(tally.held for tally in values), sum(tally.of for tally in values))


def repository_means(repositories: Iterable[str], values: Iterable[float]) -> list[float]:
    """The mean value of each repository, in the order in which they appear.

    Args:
        repositories, values: (n,) one of each for every run.
    """
    by_repository: dict[str, list[float]] = defaultdict(list)
    for repository, value in zip(repositories, values, strict=True):
        by_repository[repository].append(value)
    return [arithmetic_mean(repository_values) for repository_values in by_repository.values()]


def arithmetic_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def bootstrap_interval(votes: Sequence[float]) -> tuple[float, float]:
    """The 90 % interval of the mean if other repositories of the same kind had been drawn."""
    chance = random.Random(0)
    # Draws of the bootstrap: its quantiles are then known to about 0.002.
    num_resamples = 4000
    means = sorted(
        arithmetic_mean(chance.choices(votes, k=len(votes))) for _ in range(num_resamples)
    )
    # 0.05: share of the resampled means on each side of the 90 % interval.
    tail = round(0.05 * num_resamples)
    return means[tail], means[-tail]
