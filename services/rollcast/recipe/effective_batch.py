"""The effective batch: which rollouts of a step are trained on, with what advantage and weight.

Computed once per step when the whole batch is known; its numbers travel with the rollouts to ranks and micro-batches.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollcast.recipe.advantages import Normalisation, advantages
from rollcast.recipe.aggregation import Aggregation, rollout_weights


@dataclass(frozen=True, slots=True, eq=False)
class EffectiveBatch:
    """One entry per rollout of the batch, dropped ones included."""

    kept: NDArray[np.bool_]
    """[R] rollouts that are trained on; if none is, the step makes no update."""
    advantages: NDArray[np.float64]
    """[R]; 0 where not kept."""
    weights: NDArray[np.float64]
    """[R] weight of each loss token of the rollout; 0 where not kept."""


def varied(rewards: NDArray[np.float64], group: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the `kept` [R] rollouts stay: those of prompts whose kept rewards are not all equal.

    The zero-variance filter (arXiv 2510.13786, sections 3.2 and A.15): `rewards` are the verifier's, without a length
    penalty, so that a prompt whose answers are all right goes, however long they are. The paper writes it for rewards 0
    and 1, 0 < mean_j r_j < 1; equality says the same for every scale. A prompt with one kept rollout goes too.
    """
    if not len(rewards):
        return kept.copy()
    _, position = np.unique(group, return_inverse=True)
    num_groups = int(position.max()) + 1
    lowest = np.full(num_groups, np.inf)
    highest = np.full(num_groups, -np.inf)
    np.minimum.at(lowest, position[kept], rewards[kept])
    np.maximum.at(highest, position[kept], rewards[kept])
    return kept & (lowest < highest)[position]


def effective_batch(
    *,
    rewards: NDArray[np.float64],
    shaped: NDArray[np.float64],
    group: NDArray[np.int64],
    loss_tokens: NDArray[np.int64],
    excluded: NDArray[np.bool_],
    normalisation: Normalisation = "batch",
    aggregation: Aggregation = "prompt",
    zero_variance_filter: bool = True,
) -> EffectiveBatch:
    """Return the effective batch of R rollouts.

    Excluded rollouts and those without loss tokens are dropped first, prompts without variance second; advantages and
    weights are computed from the others.

    Args:
        rewards: [R] of the verifier; the zero-variance filter uses these.
        shaped: [R] the rewards with a length penalty; the advantages use these.
        group: [R] index of the prompt.
        loss_tokens: [R] tokens that carry loss.
        excluded: [R] rollouts that must not be trained on: truncated, or without a verdict because the grader failed.
    """
    usable = ~excluded & (loss_tokens > 0)
    kept = varied(rewards, group, usable) if zero_variance_filter else usable
    values = np.zeros(len(rewards))
    values[kept] = advantages(normalisation, shaped[kept], group[kept])
    return EffectiveBatch(
        kept=kept,
        advantages=values,
        weights=rollout_weights(aggregation, group, np.where(kept, loss_tokens, 0)),
    )
