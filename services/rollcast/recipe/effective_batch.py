"""The effective batch: which rollouts of a step are trained on, with what advantage and weight.

Computed once per step when the whole batch is known; its numbers travel with the rollouts to ranks
and micro-batches.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rollcast.recipe.advantages import Normalisation, advantages
from rollcast.recipe.aggregation import Aggregation, rollout_weights
from rollcast.recipe.custom_functions import BatchRecord, GroupRecord


@dataclass(frozen=True, slots=True, eq=False)
class EffectiveBatch:
    """One entry per rollout of the batch, dropped ones included."""

    kept_mask: NDArray[np.bool_]
    """[R] rollouts that are trained on; if none is, the step makes no update."""
    advantages: NDArray[np.float64]
    """[R]; 0 where not kept."""
    weights: NDArray[np.float64]
    """[R] weight of each loss token of the rollout; 0 where not kept."""


def filter_zero_variance(
    rewards: NDArray[np.float64], group: NDArray[np.int64], candidate_mask: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which of the `candidate_mask` [R] rollouts stay: those of prompts whose kept rewards
    are not all equal.

    The zero-variance filter (arXiv 2510.13786, sections 3.2 and A.15): `rewards` are the
    verifier's, without a length penalty, so that a prompt whose answers are all right goes, however
    long they are. The paper writes it for rewards 0 and 1, 0 < mean_j r_j < 1; equality says the
    same for every scale. A prompt with one kept rollout goes too.
    """
    if not len(rewards):
        return candidate_mask.copy()
    _, position = np.unique(group, return_inverse=True)
    num_groups = int(position.max()) + 1
    lowest = np.full(num_groups, np.inf)
    highest = np.full(num_groups, -np.inf)
    np.minimum.at(lowest, position[candidate_mask], rewards[candidate_mask])
    np.maximum.at(highest, position[candidate_mask], rewards[candidate_mask])
    # False for a prompt without a kept rollout: its bounds are still infinite.
    return candidate_mask & (lowest < highest)[position]


def kept_rollouts(
    *,
    rewards: NDArray[np.float64],
    group: NDArray[np.int64],
    loss_tokens: NDArray[np.int64],
    excluded: NDArray[np.bool_],
    zero_variance_filter: bool = True,
    keeps_group: Callable[[int, GroupRecord], bool] | None = None,
    graded: NDArray[np.bool_] | None = None,
    compared: NDArray[np.float64] | None = None,
) -> NDArray[np.bool_]:
    """Return [R] the rollouts that are trained on. Arguments as for `effective_batch`."""
    usable = ~excluded & (loss_tokens > 0)
    kept_mask = (
        filter_zero_variance(rewards if compared is None else compared, group, usable)
        if zero_variance_filter
        else usable
    )
    if keeps_group is not None:
        for index in np.unique(group[kept_mask]):
            rows = kept_mask & (group == index)
            graded_rows = rows if graded is None else rows & graded
            if graded_rows.any() and not keeps_group(
                int(index), GroupRecord(rewards[graded_rows], loss_tokens[graded_rows])
            ):
                kept_mask = kept_mask & ~rows
    return kept_mask


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
    custom_advantages: Callable[[BatchRecord], NDArray[np.float64]] | None = None,
    keeps_group: Callable[[int, GroupRecord], bool] | None = None,
    graded: NDArray[np.bool_] | None = None,
    compared: NDArray[np.float64] | None = None,
) -> EffectiveBatch:
    """Return the effective batch of R rollouts.

    Excluded rollouts and those without loss tokens are dropped first, prompts without variance
    second; advantages and weights are computed from the others.

    Args:
        rewards: [R] of the verifier; the zero-variance filter uses these.
        shaped: [R] the rewards with a length penalty; the advantages use these.
        group: [R] index of the prompt.
        loss_tokens: [R] tokens that carry loss.
        excluded: [R] rollouts that must not be trained on: truncated, or without a verdict because
            the grader failed.
        custom_advantages: takes the place of `normalisation`. None = none does.
        keeps_group: asked about each group that the other filters keep, by its index and its graded
            rollouts; a group without one stays. None = all stay.
        graded: [R] rollouts with a verdict. None = all.
        compared: [R] what the zero-variance filter compares in place of `rewards`. None = those.
    """
    kept_mask = kept_rollouts(
        rewards=rewards,
        group=group,
        loss_tokens=loss_tokens,
        excluded=excluded,
        zero_variance_filter=zero_variance_filter,
        keeps_group=keeps_group,
        graded=graded,
        compared=compared,
    )
    values = np.zeros(len(rewards))
    if custom_advantages is None:
        values[kept_mask] = advantages(normalisation, shaped[kept_mask], group[kept_mask])
    elif kept_mask.any():
        values[kept_mask] = custom_advantages(
            BatchRecord(shaped[kept_mask], group[kept_mask], loss_tokens[kept_mask])
        )
    return EffectiveBatch(
        kept_mask=kept_mask,
        advantages=values,
        weights=rollout_weights(aggregation, group, np.where(kept_mask, loss_tokens, 0)),
    )
