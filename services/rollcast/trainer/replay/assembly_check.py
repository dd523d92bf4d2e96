"""Computes masks, advantages and token weights of a recorded step again: what the trainer's rank 0
and the generators' records say before any log-prob.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.recorded.step_bundle import RecordedSequence
from rollcast.rollouts.records import Branch, Rollout, loss_mask
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.grade_check import Rewards
from rollcast.trainer.replay.recorded_batch import RecordedBatch, SequenceKey
from rollcast.trainer.replay.sampled_tokens import sampled_mask

NUMBERS = {
    "advantage": "advantages",
    "weight": "token weights",
    "kl_factor": "KL factors",
    "entropy_factor": "entropy factors",
}


def assemble_again(
    batch: RecordedBatch, recipe: Recipe, other_rewards: Rewards | None = None
) -> list[TrainingSequence]:
    """The sequences that a recipe trains on, with other rewards of some rollouts. Raises UserError
    if a function of the user's own cannot be called.
    """
    batch.check_trust(recipe, "recipe.advantage", "recipe.filter", "recipe.length_control")
    groups = batch.bundle.groups
    for (group_index, rollout_index), reward in (other_rewards or {}).items():
        group = groups[group_index]
        rollouts = [*group.rollouts]
        rollouts[rollout_index] = replace(rollouts[rollout_index], reward=reward)
        groups = [*groups]
        groups[group_index] = replace(group, rollouts=rollouts)
    teacher = {
        int(sequence): [None if item is None else tuple(item) for item in rollout_logprobs]
        for sequence, rollout_logprobs in batch.bundle.teacher_logprobs.items()
    }
    return assemble(groups, recipe, teacher or None).sequences


def check_assembly(batch: RecordedBatch, report: ReplayReport, other_rewards: Rewards) -> None:
    """Compare the trained sequences with those that follow from the groups.

    `other_rewards`: of rollouts whose grade is another now. If the sequences follow from these,
    the record of the rewards is wrong and the trainer's is right.
    """
    _check_generator_masks(batch, report)
    recorded = {SequenceKey.from_record(item): item for item in batch.bundle.sequences}
    try:
        assembled = _by_key(assemble_again(batch, batch.config.recipe))
        if other_rewards and not _are_same(assembled, recorded):
            regraded = _by_key(assemble_again(batch, batch.config.recipe, other_rewards))
            assembled = regraded if _are_same(regraded, recorded) else assembled
    except UserError as error:
        report.not_checked("trainer", "advantages and token weights", str(error))
        return
    one_sided = sorted(assembled.keys() ^ recorded.keys())
    reason = "the recipe keeps other rollouts"
    location = batch.locate(one_sided[0]) if one_sided else None
    counts = (len(recorded), len(one_sided))
    report.add("trainer", "sequences trained on", *counts, reason, location)
    common = sorted(assembled.keys() & recorded.keys())
    _check_trainer_masks(batch, report, [(assembled[key], recorded[key]) for key in common])
    locations = [batch.locate(key) for key in common]
    for name, check in NUMBERS.items():
        pairs = [(getattr(recorded[key], name), getattr(assembled[key], name)) for key in common]
        report.compare("trainer", check, pairs, 1e-6, locations)
    credited = [key for key in common if recorded[key].token_advantages is not None]
    if credited:
        pairs = [pair for key in credited for pair in _advantages(recorded[key], assembled[key])]
        report.compare("trainer", "advantages of tokens", pairs, 1e-5)


def _advantages(
    recorded: RecordedSequence, assembled: TrainingSequence
) -> Iterable[tuple[float, float]]:
    """The pairs of each token; one pair that differs if their numbers do."""
    pair = (recorded.token_advantages, assembled.token_advantages)
    if pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
        return [(0.0, math.inf)]
    return zip(pair[0].tolist(), pair[1].tolist(), strict=True)


def _by_key(sequences: list[TrainingSequence]) -> dict[SequenceKey, TrainingSequence]:
    return {SequenceKey(*sequence.origin): sequence for sequence in sequences}


def _are_same(
    assembled: Mapping[SequenceKey, TrainingSequence],
    recorded: Mapping[SequenceKey, RecordedSequence],
) -> bool:
    """Whether the same sequences have the same advantages and weights."""
    return assembled.keys() == recorded.keys() and all(
        math.isclose(getattr(assembled[key], name), getattr(recorded[key], name), rel_tol=1e-6)
        for key in assembled
        for name in NUMBERS
    )


def _check_trainer_masks(
    batch: RecordedBatch,
    report: ReplayReport,
    pairs: list[tuple[TrainingSequence, RecordedSequence]],
) -> None:
    """A mask agrees if it is that of the rollout, or that of its legs: then the rollout's own is
    wrong.
    """
    different = []
    for assembled, recorded in pairs:
        key = SequenceKey.from_record(recorded)
        _, sequence = batch.prompt_and_sequence(key)
        masks = [assembled.loss_mask, _mask_of_legs(sequence)[: len(recorded.loss_mask)]]
        if not any(np.array_equal(mask, recorded.loss_mask) for mask in masks):
            length = min(len(assembled.loss_mask), len(recorded.loss_mask))
            differs = np.flatnonzero(assembled.loss_mask[:length] != recorded.loss_mask[:length])
            different.append((key, int(differs[0]) if len(differs) else length - 1))
    reason = "the tokens with loss are not those of the rollout"
    location = batch.locate(*different[0]) if different else None
    report.add("trainer", "loss masks", len(pairs), len(different), reason, location)


def _check_generator_masks(batch: RecordedBatch, report: ReplayReport) -> None:
    """Forced and given tokens have log-prob 0 and no loss."""
    masking = {item.name for item in batch.config.tasks.environments if item.masks_sampled_tokens}
    num_compared = 0
    different = []
    for key, sequence in batch.compared_sequences():
        episode = batch.rollout(key).episode
        if episode is not None and episode.environment in masking:
            continue
        num_compared += 1
        differs = np.flatnonzero(loss_mask(sequence) != _mask_of_legs(sequence))
        if len(differs):
            different.append((key, int(differs[0])))
    reason = "the tokens without loss are not those that were forced or given"
    location = batch.locate(*different[0]) if different else None
    report.add("generator", "loss masks", num_compared, len(different), reason, location)


def _mask_of_legs(sequence: Rollout | Branch) -> NDArray[np.bool_]:
    """[L] True for sampled tokens: those of all legs except phrases and given ones."""
    if sequence.legs:
        return sampled_mask(sequence)
    # One leg, of which only its forced tokens are without a log-prob
    mask: NDArray[np.bool_] = (sequence.logprobs != 0) | loss_mask(sequence)
    return mask
