"""Run as a process: one rank of two. Rank 0 drives the learner and writes what it saw into the run
folder.

python -m tests.trainer.two_ranks (MODEL RUN_FOLDER)...        with torchrun's environment variables
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.checkpoint import load_checkpoint
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.object_storage import ObjectStorage
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.trainer.learner.saving import CheckpointSaver
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences

UPDATES = 3
RECIPE: dict[str, object] = {"kl": {"coefficient": 0.5}, "entropy_bonus": 0.02}
"""Regularised, so that the reference policy is sharded and gathered beside the trained one."""


def whole_weights(group: LearnerGroup) -> dict[str, torch.Tensor]:
    with tempfile.TemporaryDirectory() as folder:
        group.export(Path(folder) / "export")
        return {
            name: tensor
            for file in (Path(folder) / "export").glob("*.safetensors")
            for name, tensor in load_file(file).items()
        }


def distance(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> float:
    """Relative distance of two sets of weights in the 2-norm."""
    assert found.keys() == expected.keys()
    square = sum(
        float((found[name].double() - expected[name].double()).square().sum()) for name in expected
    )
    return float(
        (square / sum(float(value.double().square().sum()) for value in expected.values())) ** 0.5
    )


def ratio_statistics(stats: UpdateStats) -> tuple[float | None, ...]:
    shares = (stats.ratios_clipped_low, stats.ratios_clipped_high, stats.ratios_masked)
    return (*shares, stats.effective_sample_share, stats.generator_kl)


def places(group: LearnerGroup) -> dict[str, tuple[int, int, int]]:
    """Of each weight's rows: address and bytes of the memory that holds them, bytes without
    padding.
    """
    local = {name: weight.to_local() for name, weight in group.learner.policy.named_weights()}
    return {
        name: (rows.untyped_storage().data_ptr(), rows.untyped_storage().nbytes(), rows.nbytes)
        for name, rows in local.items()
    }


def taught_by(model: Path | str) -> dict[str, object]:
    """RECIPE with a teacher: this model, before it is trained."""
    return RECIPE | {
        "distillation": {"teacher": {"kind": "folder", "path": str(model)}, "with_reward": True}
    }


def main() -> None:
    models_and_folders = sys.argv[1:]
    ranks = join_ranks(timeout_seconds=30, threads=1)
    for model, run_folder in zip(models_and_folders[::2], models_and_folders[1::2], strict=True):
        store, lane_store = (
            PrefixStore(run_folder, whole) for whole in (ranks.store, ranks.lane_store)
        )
        train(
            replace(ranks, store=store, lane_store=lane_store), model, run_folder
        )  # as if no run had been before
    ranks.leave()


def train(ranks: Ranks, model: str, run_folder: str) -> None:
    results = Path(run_folder) / "results.pt"
    group = LearnerGroup.build(
        make_config(
            Path(model),
            Path(run_folder),
            recipe=taught_by(model),
            trainer={"checkpoint_every_steps": 1},  # so often are ranks that are well compared
        ),
        ranks,
    )
    objects = f"file://{run_folder}/objects"
    CheckpointSaver(group.learner, ObjectStorage(objects), keep=1).begin(
        PolicyVersion(1, 0), {}
    ).result()
    dist.barrier()
    load_checkpoint(f"{objects}/1.0", group.learner)
    if ranks.rank > 0:
        before = places(group)
        assert group.follow() is TrainerEnding.FINISHED
        torch.save((before, places(group)), results.with_name("places.pt"))
    else:
        initial = whole_weights(group)
        stats = [group.update(make_sequences(0))]
        first_checkpoint = group.save(PolicyVersion(1, 1), {}).result()
        stats += [group.update(make_sequences(step)) for step in range(1, UPDATES)]
        weights = whole_weights(group)
        checkpoint = group.save(PolicyVersion(1, UPDATES), {"step": UPDATES}).result()
        single = group.update(
            make_sequences(7, num_groups=1)[:1]
        )  # less than one sequence for each rank
        further = whole_weights(group)
        restored = group.restore(checkpoint)
        again = group.update(make_sequences(7, num_groups=1)[:1])
        resumed = whole_weights(group)
        group.export(results.with_name("export"))
        group.stop(TrainerEnding.FINISHED)
        torch.save(
            {
                "initial": initial,
                "first_checkpoint": str(first_checkpoint),
                "loss": [s.loss for s in stats],
                "kl": [s.kl for s in stats],
                "teacher_kl": [s.teacher_kl for s in stats],
                "grad_norm": [s.grad_norm for s in stats],
                "gap": [(s.logprob_gap_mean, s.logprob_gap_max, s.entropy) for s in stats],
                "ratios": [ratio_statistics(s) for s in stats],
                "tokens": [s.tokens for s in stats],
                "weights": weights,
                "single": (single.loss, single.micro_batches, again.loss),
                "further": further,
                "resumed": resumed,
                "restored": restored,
                "checkpoint": str(checkpoint),
            },
            results,
        )


if __name__ == "__main__":
    main()
