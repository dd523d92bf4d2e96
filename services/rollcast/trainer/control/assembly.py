"""Computes the training sequences of a batch from its groups: rewards, filters, advantages, weights."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.config.recipe import LengthPenalty, Recipe
from rollcast.recipe.effective_batch import effective_batch
from rollcast.recipe.length_control import length_penalty
from rollcast.rollouts.records import Rollout, RolloutGroup
from rollcast.trainer.learner.batch import TrainingSequence, loss_mask, training_sequences

REWARD_GAP_RATIO = 0.5
"""Gap between right and wrong rewards here, 1, over the paper's, 2 (A.3: +1 and -1): it scales the penalty of Eq 9."""


@dataclass(frozen=True, slots=True)
class AssembledBatch:
    sequences: list[TrainingSequence]
    """The effective batch only; empty = no update."""
    kept_groups: frozenset[int]
    """Task sequences of groups with at least one trained rollout."""


def assemble(groups: Sequence[RolloutGroup], recipe: Recipe) -> AssembledBatch:
    """Return the effective batch. Left out: truncated rollouts (by the recipe), and those without a verdict."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    owner = np.array([index for index, group in enumerate(groups) for _ in group.rollouts], dtype=np.int64)
    effective = effective_batch(
        rewards=np.array([rollout.reward for rollout in rollouts]),
        shaped=np.array([shaped_reward(rollout, recipe) for rollout in rollouts]),
        group=owner,
        loss_tokens=np.array([int(loss_mask(rollout).sum()) for rollout in rollouts], dtype=np.int64),
        # A grader that failed says nothing about the answer.
        excluded=np.array([not one.has_verdict or (recipe.exclude_truncated and one.truncated) for one in rollouts]),
        normalisation=recipe.advantage_normalisation,
        aggregation=recipe.aggregation,
        zero_variance_filter=recipe.zero_variance_filter,
    )
    kept = {groups[index].sequence for index in np.unique(owner[effective.kept])}
    return AssembledBatch(training_sequences(groups, effective), frozenset(kept))


def shaped_reward(rollout: Rollout, recipe: Recipe) -> float:
    """The verifier's reward, with the length penalty (Eq 9) if the recipe has one.

    The longest answer keeps half of its lead over a wrong one, as in the paper: a right one counts 0.5, a wrong one 0.
    """
    control = recipe.length_control
    if isinstance(control, LengthPenalty):
        penalty = length_penalty(rollout.num_tokens, max_tokens=control.max_tokens, cache_tokens=control.cache_tokens)
        return rollout.reward * (1 + REWARD_GAP_RATIO * penalty)
    return rollout.reward
