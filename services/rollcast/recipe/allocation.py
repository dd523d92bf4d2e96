"""How many rollouts each prompt gets: the same for all, or by difficulty within the same budget.

The mean reward of n rollouts of a prompt with pass rate p has the variance p (1 - p) / n if rewards
are 0 and 1, and at most that if some are between. Prompts dispatched together share G rollouts
each; those seen before get them so that the sum of these variances is least:

    minimise sum_i p_i (1 - p_i) / n_i    subject to    sum_i n_i = (number of seen prompts) G,
                                          least <= n_i <= most

Each term is convex in n_i, so giving one rollout after the other to the prompt whose variance falls
most by it is optimal. A prompt without history gets G. Pass rates are those of training so far,
known before anything is sampled, and pulled towards one half by one right and one wrong answer: 0
of 16 does not mean never.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollcast.config.recipe import Recipe

Counts = tuple[float, int]
"""Sum of the rewards and number of the graded rollouts of a prompt in training so far; (0, 0) =
new."""


def allocated_rollouts(recipe: Recipe, counts: Sequence[Counts]) -> list[int]:
    """Return the number of rollouts of each of the prompts dispatched together; G on average."""
    allocation = recipe.rollout_allocation
    mean = recipe.rollouts_per_prompt
    if allocation.kind == "fixed":
        return [mean] * len(counts)
    return rollouts_by_difficulty(
        counts, mean=mean, min_rollouts=allocation.least, max_rollouts=allocation.most
    )


def rollouts_by_difficulty(
    counts: Sequence[Counts], *, mean: int, min_rollouts: int, max_rollouts: int
) -> list[int]:
    """Return the optimal numbers: `mean` x the number of prompts in all, none outside [least,
    most].
    """
    assert min_rollouts <= mean <= max_rollouts, (min_rollouts, mean, max_rollouts)
    numbers = [mean] * len(counts)
    spreads: dict[int, float] = {}
    for index, (reward, graded) in enumerate(counts):
        if graded:
            # Pulled towards one half by one right and one wrong answer.
            pass_rate = (reward + 1) / (graded + 2)
            spreads[index] = pass_rate * (1 - pass_rate)
            numbers[index] = min_rollouts
    queue = [(-_gain(spread, min_rollouts), index) for index, spread in spreads.items()]
    heapify(queue)
    for _ in range(len(queue) * (mean - min_rollouts)):
        _, index = queue[0]
        numbers[index] += 1
        gain = _gain(spreads[index], numbers[index]) if numbers[index] < max_rollouts else 0.0
        heapreplace(queue, (-gain, index))
    return numbers


def _gain(spread: float, num_rollouts: int) -> float:
    """By how much the variance falls with one rollout more; positive."""
    # p (1 - p) (1 / n - 1 / (n + 1))
    return spread / (num_rollouts * (num_rollouts + 1))
