"""Loss and figures of a step from log-probs: the recorded ones, without any weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.recipe.learning_rate import learning_rate, scaled_to_batch
from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import MicroBatch, denominator
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.objective import Objective, TokenValues
from rollcast.trainer.learner.step_sums import Sums, batch_figures
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch

COMPARED = (
    "logprob_gap_mean",
    "logprob_gap_max",
    "entropy",
    "kl",
    "ratios_clipped_low",
    "ratios_clipped_high",
    "ratios_masked",
    "effective_sample_share",
    "generator_kl",
    "clamped_ratios",
)
"""Figures of a step besides its loss."""


def figures_of_record(
    batch: RecordedBatch, recipe: Recipe, micro_batches: Sequence[MicroBatch]
) -> dict[str, Any] | None:
    """Loss and figures under a recipe, of micro-batches whose tokens have recorded log-probs; None
    if some have not. Raises UserError if a function of the user's own cannot be called.
    """
    batch.check_trust(recipe, "recipe.loss")
    kl = recipe.kl
    objective = Objective(
        make_loss(recipe.loss),
        recipe.corrections,
        recipe.entropy_bonus,
        kl_coefficient=0.0 if kl is None else kl.coefficient,
        kl_estimator="k3" if kl is None else kl.estimator,
    )
    measured = []
    for micro_batch in micro_batches:
        names = ("logprobs", "entropy", "trained_advantages", "reference_logprobs")
        recorded = {name: batch.loss_token_values(name, micro_batch) for name in names}
        if recorded["logprobs"] is None or recorded["entropy"] is None:
            return None
        reference = recorded["reference_logprobs"] if kl is not None else None
        if kl is not None and reference is None:
            return None
        padded = pad_micro_batch(micro_batch, torch.device("cpu"))
        advantages = padded.advantages
        if (trained := recorded["trained_advantages"]) is not None and recipe.distillation:
            advantages = torch.from_numpy(trained)
        values = TokenValues(
            torch.from_numpy(recorded["logprobs"].astype(np.float32)),
            torch.from_numpy(recorded["entropy"].astype(np.float32)),
            advantages,
            None if reference is None else torch.from_numpy(reference.astype(np.float32)),
        )
        num_tokens = sum(sequence.num_tokens for sequence in micro_batch)
        with torch.no_grad():
            measured.append(objective.evaluate(padded, values, num_tokens))
    sums = torch.stack([torch.stack(list(item.sums)) for item in measured]).sum(0)
    largest_gap = max(float(item.largest_gap) for item in measured)
    return batch_figures(
        Sums(*sums.tolist()),
        largest_gap,
        denominator(sequence for micro_batch in micro_batches for sequence in micro_batch),
        has_reference=kl is not None,
        reports_clipped=objective.reports_clipped,
    )


def check_losses(batch: RecordedBatch, report: ReplayReport) -> None:
    """Compare loss and figures, computed from the recorded log-probs, with the record."""
    recorded = batch.bundle.figures
    recipe = batch.config.recipe
    if not recorded:
        report.not_checked("trainer", "loss", "the update did not finish")
        return
    try:
        figures = figures_of_record(batch, recipe, batch.micro_batches)
    except UserError as error:
        report.not_checked("trainer", "loss", str(error))
        return
    if figures is None:
        report.not_checked("trainer", "loss", "the record has no log-probs of the trainer")
        return
    # Sums of float32 in another order
    report.compare("trainer", "loss", [(recorded["loss"], figures["loss"])], 1e-5)
    for name in COMPARED:
        if recorded.get(name) is not None:
            pair = (recorded[name], figures[name] or 0.0)
            report.compare("trainer", name.replace("_", " "), [pair], 1e-4)
    rate = learning_rate(scaled_to_batch(recipe), batch.bundle.version.step)
    report.compare("trainer", "learning rate", [(recorded["learning_rate"], rate)], 1e-6)
