"""Makes the parts of a rank: its learner, and its end of a store of weights."""

from __future__ import annotations

from pathlib import Path

import torch

from rollcast.config.connections import Weights
from rollcast.config.distillation import FolderTeacher
from rollcast.config.model import Model
from rollcast.config.out_of_memory import told_what_did_not_fit
from rollcast.config.recipe import Recipe
from rollcast.config.services import Trainer
from rollcast.recipe.learning_rate import scaled_to_batch
from rollcast.recipe.losses.make import make_loss
from rollcast.runfolder.weight_store import open_weight_store
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.reading import read_policy, read_reference, read_teacher
from rollcast.weights.sender.rank_store import RankStore
from rollcast.weights.sender.staging import StagingSlots

MORE_RANKS = "give the trainer more ranks"


def build_learner(
    model: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks, *, seed: int = 0
) -> Learner:
    """The model's share of this rank with its optimizer. `seed` makes the adapters of model.lora.

    Raises UserError if it cannot be read, or does not fit.
    """
    with told_what_did_not_fit(f"this rank's share of model.path = {model.path!r}", MORE_RANKS):
        policy = read_policy(model, recipe, trainer, ranks, dtype=torch.float32, seed=seed)
    reference = None
    if recipe.kl:
        with told_what_did_not_fit(
            "this rank's share of the reference policy (recipe.kl)", MORE_RANKS
        ):
            reference = read_reference(recipe.kl, model, recipe, trainer, ranks, trained=policy)
    teacher = None
    distillation = recipe.distillation
    if distillation is not None and isinstance(distillation.teacher, FolderTeacher):
        path = distillation.teacher.path
        with told_what_did_not_fit(
            f"this rank's share of the teacher (recipe.distillation) {path!r}", MORE_RANKS
        ):
            teacher = read_teacher(
                path,
                distillation.coefficient,
                model,
                recipe,
                trainer,
                ranks,
                vocab_size=policy.vocab_size,
            )
    return Learner(
        policy,
        optimizer_settings=scaled_to_batch(recipe),
        loss=make_loss(recipe.loss),
        ranks=ranks,
        reference=reference,
        teacher=teacher,
        entropy_bonus=recipe.entropy_bonus,
        corrections=recipe.corrections,
        attention=trainer.attention,
        packing=trainer.packing,
    )


def make_rank_store(
    weights: Weights, run_folder: Path, rank: int, slots: StagingSlots
) -> RankStore | None:
    """A rank's end of the store; None = versions go through process groups.

    Raises UserError: the store cannot be used.
    """
    if not weights.uses_store:
        return None
    folder = open_weight_store(run_folder, weights.store.location, probe=f"probe-{rank}")
    return RankStore(folder, rank, slots)
