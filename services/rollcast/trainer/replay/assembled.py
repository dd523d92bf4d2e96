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
from rollcast.rollouts.records import Branch, LegKind, Rollout, loss_mask
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.replay.comparison import ReplayReport, TokenPlace
from rollcast.trainer.replay.grades import Rewards
from rollcast.trainer.replay.recorded_batch import RecordedBatch

Origin = tuple[int, int, int]
"""Indices of group and rollout, and number of the sequence."""
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
    groups = batch.bundle.groups
    if other_rewards:
        groups = [
            replace(
                group,
                rollouts=[
                    replace(
                        rollout, reward=other_rewards.get((index, rollout_index), rollout.reward)
                    )
                    for rollout_index, rollout in enumerate(group.rollouts)
                ],
            )
            for index, group in enumerate(groups)
        ]
    answers = batch.bundle.teacher_logprobs
    teacher = None
    if answers:
        teacher = {
            int(sequence): [None if item is None else tuple(item) for item in rollouts]
            for sequence, rollouts in answers.items()
        }
    return assemble(groups, recipe, teacher).sequences


def check_assembly(batch: RecordedBatch, report: ReplayReport, other_rewards: Rewards) -> None:
    """Compare the trained sequences with those that follow from the groups.

    `other_rewards`: of rollouts whose grade is another now. If the sequences follow from these,
    the record of the rewards is wrong and the trainer's is right.
    """
    _check_generator_masks(batch, report)
    recorded = {(item.group, item.rollout, item.number): item for item in batch.bundle.sequences}
    try:
        made = _by_origin(assemble_again(batch, batch.config.recipe))
        if other_rewards and not _are_same(made, recorded):
            regraded = _by_origin(assemble_again(batch, batch.config.recipe, other_rewards))
            made = regraded if _are_same(regraded, recorded) else made
    except UserError as error:
        report.not_checked("trainer", "advantages and token weights", str(error))
        return
    # Sequences that only one side trained on
    differing = sorted(made.keys() ^ recorded.keys())
    report.add(
        "trainer",
        "sequences trained on",
        len(recorded),
        len(differing),
        reason="the recipe keeps other rollouts",
        place=batch.place(*differing[0]) if differing else None,
    )
    common = sorted(made.keys() & recorded.keys())
    _check_trainer_masks(batch, report, [(made[key], recorded[key]) for key in common])
    places = [batch.place(*key) for key in common]
    for name, check in NUMBERS.items():
        pairs = [(getattr(recorded[key], name), getattr(made[key], name)) for key in common]
        report.compare("trainer", check, pairs, 1e-6, places)
    credited = [key for key in common if recorded[key].token_advantages is not None]
    if credited:
        pairs = [pair for key in credited for pair in _advantages(recorded[key], made[key])]
        report.compare("trainer", "advantages of tokens", pairs, 1e-5)


def _advantages(
    recorded: RecordedSequence, made: TrainingSequence
) -> Iterable[tuple[float, float]]:
    """The pairs of each token; one pair that differs if their numbers do."""
    pair = (recorded.token_advantages, made.token_advantages)
    if pair[0] is None or pair[1] is None or len(pair[0]) != len(pair[1]):
        return [(0.0, math.inf)]
    return zip(pair[0].tolist(), pair[1].tolist(), strict=True)


def _by_origin(sequences: list[TrainingSequence]) -> dict[Origin, TrainingSequence]:
    return {sequence.origin: sequence for sequence in sequences}


def _are_same(
    made: Mapping[Origin, TrainingSequence], recorded: Mapping[Origin, RecordedSequence]
) -> bool:
    """Whether the same sequences have the same advantages and weights."""
    return made.keys() == recorded.keys() and all(
        math.isclose(getattr(made[key], name), getattr(recorded[key], name), rel_tol=1e-6)
        for key in made
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
    num_different = 0
    place: TokenPlace | None = None
    for made, recorded in pairs:
        _, sequence = batch.prompt_and_sequence(recorded)
        masks = [made.loss_mask, _mask_of_legs(sequence)[: len(recorded.loss_mask)]]
        if any(np.array_equal(mask, recorded.loss_mask) for mask in masks):
            continue
        num_different += 1
        if place is None:
            length = min(len(made.loss_mask), len(recorded.loss_mask))
            differs = np.flatnonzero(made.loss_mask[:length] != recorded.loss_mask[:length])
            token = int(differs[0]) if len(differs) else length - 1
            place = batch.place(*made.origin, token)
    report.add(
        "trainer",
        "loss masks",
        len(pairs),
        num_different,
        reason="the tokens with loss are not those of the rollout",
        place=place,
    )


def _check_generator_masks(batch: RecordedBatch, report: ReplayReport) -> None:
    """Forced and given tokens have log-prob 0 and no loss."""
    masking = {item.name for item in batch.config.tasks.environments if item.masks_sampled_tokens}
    num_compared = 0
    places = []
    for index, group in batch.groups:
        for place, rollout in enumerate(group.rollouts):
            if rollout.episode is not None and rollout.episode.environment in masking:
                continue
            for number, sequence in enumerate(rollout.sequences):
                num_compared += 1
                differs = np.flatnonzero(loss_mask(sequence) != _mask_of_legs(sequence))
                if len(differs):
                    places.append(batch.place(index, place, number, int(differs[0])))
    report.add(
        "generator",
        "loss masks",
        num_compared,
        len(places),
        reason="the tokens without loss are not those that were forced or given",
        place=places[0] if places else None,
    )


def _mask_of_legs(sequence: Rollout | Branch) -> NDArray[np.bool_]:
    """[L] True for sampled tokens: those of all legs except phrases and given ones."""
    mask: NDArray[np.bool_] = sequence.logprobs != 0
    if not sequence.legs:  # one leg, of which only its forced tokens are without a log-prob
        mask |= loss_mask(sequence)
        return mask
    mask[:] = True
    for leg in sequence.legs:
        if leg.kind in (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE):
            mask[leg.start : leg.end] = False
    return mask
