"""Computes the training sequences of a batch from its groups: rewards, filters, advantages,
weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rollcast.config.custom_function import CustomFunction
from rollcast.config.recipe import LengthPenalty, Recipe
from rollcast.recipe.custom_functions import CompletionRecord, custom_advantages, custom_penalty
from rollcast.recipe.difficulty import coefficient_factors
from rollcast.recipe.distillation import distillation_advantages, token_reverse_kl
from rollcast.recipe.effective_batch import EffectiveBatch, effective_batch, kept_rollouts
from rollcast.recipe.length_control import length_penalty
from rollcast.rollouts.records import EpisodeEnd, Rollout, RolloutGroup, loss_mask
from rollcast.trainer.control.episode_credit import (
    ComparedReward,
    SequenceAdvantages,
    compared_reward,
    turn_credited,
    uses_turn_credit,
)
from rollcast.trainer.control.group_filter import GroupFilter
from rollcast.trainer.control.pass_rate import counted_reward
from rollcast.trainer.control.teacher import RolloutLogprobs
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    num_loss_tokens,
    training_sequences,
)


@dataclass(frozen=True, slots=True)
class AssembledBatch:
    sequences: list[TrainingSequence]
    """The effective batch only; empty = no update."""
    kept_groups: frozenset[int]
    """Task sequences of groups with at least one trained rollout."""
    teacher_kl: float | None = None
    """Nats per loss token: mean of log pi_gen - log pi_teacher. None = no teacher's log-probs were
    given."""


def assemble(
    groups: Sequence[RolloutGroup],
    recipe: Recipe,
    teacher: Mapping[int, Sequence[RolloutLogprobs | None]] | None = None,
    known_filter: GroupFilter | None = None,
) -> AssembledBatch:
    """Return the effective batch. Left out: truncated rollouts (by the recipe), those without a
    verdict, and episodes whose environment failed.

    `teacher`: by task sequence, an endpoint's log-probs of each rollout; a rollout without them is
    left out. None = the recipe has no such teacher. `known_filter`: remembers what the recipe's
    filter said of these groups. None = ask it.
    """
    group_filter = known_filter or GroupFilter(recipe)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    owner = np.array(
        [index for index, group in enumerate(groups) for _ in group.rollouts], dtype=np.int64
    )
    answers = None if teacher is None else _answers(groups, teacher)
    rewards = _rewards(rollouts)
    shaped = np.array([shaped_reward(rollout, recipe) for rollout in rollouts])
    effective = effective_batch(
        rewards=rewards,
        # With a teacher alone its part is the whole advantage.
        shaped=shaped if recipe.uses_reward else np.zeros(len(rollouts)),
        group=owner,
        loss_tokens=_loss_tokens(rollouts),
        excluded=_exclusion_mask(rollouts, recipe, answers),
        normalisation=recipe.advantage_normalisation,
        aggregation=recipe.aggregation,
        # With a teacher alone a group is of use although its rewards are equal.
        zero_variance_filter=recipe.zero_variance_filter and recipe.uses_reward,
        custom_advantages=partial(custom_advantages, recipe.advantage)
        if recipe.advantage
        else None,
        keeps_group=lambda index, record: group_filter.keeps(groups[index], record),
        graded=_verdict_mask(rollouts),
        compared=_comparison_keys(rollouts, recipe),
    )
    kept_sequences = {groups[index].sequence for index in np.unique(owner[effective.kept_mask])}
    factors = None
    if recipe.scale_by_difficulty:
        factors = coefficient_factors(rewards, owner, effective.kept_mask & _verdict_mask(rollouts))
    token_advantages = turn_credited(rollouts, shaped, owner, effective.kept_mask, recipe)
    if answers is None or recipe.distillation is None:
        return AssembledBatch(
            training_sequences(groups, effective, factors, token_advantages),
            frozenset(kept_sequences),
        )
    token_advantages = _distillation_advantages(
        rollouts, answers, effective, token_advantages, recipe.distillation.coefficient
    )
    sequences = training_sequences(groups, effective, factors, token_advantages)
    return AssembledBatch(
        sequences, frozenset(kept_sequences), _teacher_kl(rollouts, answers, effective)
    )


def can_be_trained_on(group: RolloutGroup, recipe: Recipe, group_filter: GroupFilter) -> bool:
    """Whether a group that came back has rollouts for a batch.

    Asks no advantage and no length penalty.
    """
    rollouts = group.rollouts
    is_kept = kept_rollouts(
        rewards=_rewards(rollouts),
        group=np.zeros(len(rollouts), dtype=np.int64),
        loss_tokens=_loss_tokens(rollouts),
        excluded=_exclusion_mask(rollouts, recipe, None),
        zero_variance_filter=recipe.zero_variance_filter and recipe.uses_reward,
        keeps_group=lambda _, record: group_filter.keeps(group, record),
        graded=_verdict_mask(rollouts),
        compared=_comparison_keys(rollouts, recipe),
    )
    return bool(is_kept.any())


def _answers(
    groups: Sequence[RolloutGroup], teacher: Mapping[int, Sequence[RolloutLogprobs | None]]
) -> list[RolloutLogprobs | None]:
    """[R] the teacher's log-probs of each rollout."""
    # The teacher is not asked about a group of which nothing can be trained on.
    return [
        answer
        for group in groups
        for answer in teacher.get(group.sequence, [None] * len(group.rollouts))
    ]


def _rewards(rollouts: Sequence[Rollout]) -> NDArray[np.float64]:
    """[R] of the verifier, 0 for truncated ones."""
    return np.array([counted_reward(rollout) for rollout in rollouts])


def _loss_tokens(rollouts: Sequence[Rollout]) -> NDArray[np.int64]:
    """[R] tokens that carry loss, of all sequences of a rollout."""
    return np.array([num_loss_tokens(rollout) for rollout in rollouts], dtype=np.int64)


def _comparison_keys(rollouts: Sequence[Rollout], recipe: Recipe) -> NDArray[np.float64] | None:
    """[R] equal numbers for equal rewards, those of turns included.

    None = the filter compares the rewards alone.
    """
    if not uses_turn_credit(recipe):
        return None
    number: dict[ComparedReward, float] = {}
    compared = [compared_reward(rollout, recipe) for rollout in rollouts]
    # The filter compares numbers, so each distinct tuple of rewards gets one.
    return np.array([number.setdefault(key, float(len(number))) for key in compared])


def _verdict_mask(rollouts: Sequence[Rollout]) -> NDArray[np.bool_]:
    """[R] rollouts with a verdict."""
    return np.array([rollout.has_verdict for rollout in rollouts], dtype=np.bool_)


def _exclusion_mask(
    rollouts: Sequence[Rollout], recipe: Recipe, answers: Sequence[RolloutLogprobs | None] | None
) -> NDArray[np.bool_]:
    """[R] rollouts that must not be trained on."""
    excluded = np.zeros(len(rollouts), dtype=np.bool_)
    for index, rollout in enumerate(rollouts):
        is_cut = recipe.exclude_truncated and rollout.truncated
        # A grader that failed says nothing about the answer, and neither does a teacher.
        is_ungraded = recipe.uses_reward and not rollout.has_verdict
        is_unanswered = answers is not None and answers[index] is None
        # Nor does an environment that failed say anything about the model's turns.
        is_failed = rollout.episode is not None and rollout.episode.end is EpisodeEnd.FAILED
        excluded[index] = is_cut or is_ungraded or is_unanswered or is_failed
    return excluded


def _distillation_advantages(
    rollouts: Sequence[Rollout],
    answers: Sequence[RolloutLogprobs | None],
    effective: EffectiveBatch,
    token_advantages: Mapping[int, SequenceAdvantages],
    coefficient: float,
) -> dict[int, SequenceAdvantages]:
    """Return the token advantages of each kept rollout, by its index: those of the reward with the
    teacher's part.

    `token_advantages`: those of the reward, of rollouts whose tokens do not share one.
    """
    advantages_by_rollout = {}
    for index, (rollout, answer) in enumerate(zip(rollouts, answers, strict=True)):
        if not effective.kept_mask[index] or answer is None:
            continue
        rollout_advantages = []
        for number, sequence in enumerate(rollout.sequences):
            student_logprobs = sequence.logprobs.astype(np.float64)
            base = np.full(len(student_logprobs), effective.advantages[index])
            if index in token_advantages:
                base = token_advantages[index][number].astype(np.float64)
            teacher_logprobs = answer[number].astype(np.float64)
            rollout_advantages.append(
                distillation_advantages(
                    base, student_logprobs, teacher_logprobs, coefficient
                ).astype(np.float32)
            )
        advantages_by_rollout[index] = rollout_advantages
    return advantages_by_rollout


def _teacher_kl(
    rollouts: Sequence[Rollout],
    answers: Sequence[RolloutLogprobs | None],
    effective: EffectiveBatch,
) -> float | None:
    """Mean over the loss tokens of the kept rollouts; None without any."""
    differences = []
    for rollout, answer, is_kept in zip(rollouts, answers, effective.kept_mask, strict=True):
        if not is_kept or answer is None:
            continue
        for sequence, teachers in zip(rollout.sequences, answer, strict=True):
            kl = token_reverse_kl(sequence.logprobs.astype(np.float64), teachers.astype(np.float64))
            differences.append(kl[loss_mask(sequence)])
    return float(np.concatenate(differences).mean()) if differences else None


def shaped_reward(rollout: Rollout, recipe: Recipe) -> float:
    """The verifier's reward, 0 for a truncated answer, with the length penalty (Eq 9) if the recipe
    has one.

    The longest answer keeps half of its lead over a wrong one, as in the paper: a right one counts
    0.5, a wrong one 0.
    """
    reward = counted_reward(rollout)
    control = recipe.length_control
    if isinstance(control, LengthPenalty):
        penalty = length_penalty(
            rollout.num_tokens, max_tokens=control.max_tokens, cache_tokens=control.cache_tokens
        )
        # Right and wrong rewards are 1 apart here and 2 in the paper (A.3: +1 and -1), so the
        # penalty of Eq 9 counts half.
        return reward * (1 + 0.5 * penalty)
    if isinstance(control, CustomFunction):
        max_tokens = recipe.max_completion_tokens
        completion = CompletionRecord(rollout.num_tokens, max_tokens, reward, rollout.truncated)
        return reward + custom_penalty(control, completion)
    return reward
