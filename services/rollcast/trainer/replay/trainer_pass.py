"""The trainer's part with weights: its own learner, on one rank and in float32, repeats the update
from the weights before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rollcast.config.recipe import Recipe
from rollcast.recorded.array_file import Arrays
from rollcast.recorded.step_bundle import RECORD_FILE, load_step
from rollcast.trainer.learner.batch import MicroBatch, denominator
from rollcast.trainer.learner.build import build_learner
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.loss_tape import LossTape
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.trainer.learner.whole_weights import array_digest
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch, SequenceKey
from rollcast.trainer.replay.token_gaps import TokenGaps

LOGPROBS = "log-probs of its own weights"


def make_learner(batch: RecordedBatch, recipe: Recipe, ranks: Ranks, weights: Arrays) -> Learner:
    """A learner of the run's model with these weights, in float32.

    Raises UserError if model.path cannot be read or a function of the user's own cannot be called,
    ValueError if the weights are of another model.
    """
    batch.check_trust(recipe, "recipe.loss")
    config = batch.config
    # Nothing that only makes it faster or smaller on a GPU
    trainer = config.trainer.model_copy(
        update={"compile": False, "activation_checkpointing": False, "packing": False}
    )
    model = config.model.model_copy(update={"dtype": "float32"})
    learner = build_learner(model, recipe, trainer, ranks, seed=config.seed)
    trained = dict(learner.policy.trained_weights())
    if trained.keys() != weights.keys():
        raise ValueError("the kept weights are not those of model.path's model")
    with torch.no_grad():
        for name, weight in trained.items():
            weight.to_local().copy_(torch.from_numpy(weights[name]))
    learner.updates = batch.bundle.version.step
    learner.tape = LossTape(ranks, list(trained.items()))
    return learner


def update(
    learner: Learner, micro_batches: Sequence[MicroBatch]
) -> tuple[UpdateStats, NDArray[np.float64]]:
    """One update, and the log-probs [T] before it."""
    sequences = [sequence for micro_batch in micro_batches for sequence in micro_batch]
    assert learner.tape is not None
    stats = learner.update(micro_batches, denominator(sequences))
    taped = learner.tape.take()
    assert taped is not None
    return stats, taped.values[0][0]


def check_digests(batch: RecordedBatch, report: ReplayReport) -> set[str]:
    """Compare kept weights with their checksums; returns the versions whose file is damaged."""
    bundle = batch.bundle
    sentences: dict[str, str] = {}
    num_compared = 0
    num_damaged = 0
    for version in bundle.needed_versions:
        if not bundle.weights_file(version).exists():
            report.not_checked(
                "trainer", f"weights {version}", "were not kept: no room, or no time"
            )
            continue
        weights, checksums = bundle.load_weights(version)
        expected: Mapping[str, str] = checksums
        if version == bundle.version and bundle.digests_before:
            expected = bundle.digests_before
        num_compared += len(weights)
        names = [name for name in weights if array_digest(weights[name]) != expected.get(name)]
        num_damaged += len(names)
        if names:
            num_more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            sentences[str(version)] = f"weights {version}: {names[0]}{num_more}"
    if num_compared:
        reason = f"{', '.join(sentences.values())} is not what its checksum says"
        report.add("trainer", "kept weights", num_compared, num_damaged, reason)
    _check_next_step(batch, report)
    return set(sentences)


def _check_next_step(batch: RecordedBatch, report: ReplayReport) -> None:
    """The weights after this step are those before the next, if that is recorded."""
    check = "weights after the step"
    bundle = batch.bundle
    next_folder = bundle.path.parent / f"step-{bundle.step + 1}"
    if not bundle.digests_after or not (next_folder / RECORD_FILE).exists():
        report.not_checked(
            "trainer", check, "the optimizer's moments are not recorded, nor is the next step"
        )
        return
    next_step = load_step(next_folder)
    if next_step.version.incarnation != bundle.version.incarnation or not next_step.digests_before:
        report.not_checked("trainer", check, "the next recorded step is of another start")
        return
    names = [
        name
        for name, digest in bundle.digests_after.items()
        if next_step.digests_before.get(name) != digest
    ]
    reason = f"{', '.join(names[:3])} changed between this step and the next"
    report.add("trainer", check, len(bundle.digests_after), len(names), reason)


def check_update(batch: RecordedBatch, report: ReplayReport, ranks: Ranks, weights: Arrays) -> None:
    """Compare log-probs, loss and gradient norm of the repeated update with the record."""
    learner = make_learner(batch, batch.config.recipe, ranks, weights)
    stats, logprobs = update(learner, batch.micro_batches)
    recorded: dict[str, Any] = batch.bundle.figures
    gaps = TokenGaps(batch)
    start = 0
    for item, sequence in zip(batch.bundle.sequences, batch.sequences, strict=True):
        end = start + int(sequence.loss_mask.sum())
        if item.logprobs is not None:
            key = SequenceKey.from_record(item)
            positions = np.flatnonzero(sequence.loss_mask)
            gaps.add(key, positions, item.logprobs, logprobs[start:end], "trainer_replayed")
        start = end
    gaps.report(report, "trainer", LOGPROBS, "under the weights before the step")
    if not recorded:
        report.not_checked("trainer", "gradient norm", "the update did not finish")
        return
    tolerance = 1e-4 if batch.is_float32 else 0.05
    norms = (recorded["grad_norm"], stats.grad_norm)
    report.compare("trainer", "gradient norm", [norms], tolerance)
    losses = (recorded["loss"], stats.loss)
    report.compare("trainer", "loss of its own weights", [losses], tolerance)
