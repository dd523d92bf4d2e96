"""Run as a process: one rank of a run with LoRA. Rank 0 drives the learner and writes what it saw
into the run folder.

python -m tests.trainer.lora_ranks MODEL RUN_FOLDER        with torchrun's environment variables
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences
from tests.trainer.two_ranks import distance, whole_weights

UPDATES = 3
RECIPE: dict[str, object] = {
    "kl": {"coefficient": 0.5},
    "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0, "epsilon": 1e-8},
}
MODEL = {"lora": {"rank": 5, "alpha": 10}, "dtype": "bfloat16"}
"""5 rows are not even over two ranks."""


def main() -> None:
    model, run_folder, dtype = sys.argv[1:]
    ranks = join_ranks(timeout_seconds=30, threads=1)
    group = built(Path(model), Path(run_folder), dtype, ranks)
    if ranks.rank > 0:
        assert group.follow() is TrainerEnding.FINISHED
    else:
        seen = drive(group)
        group.stop(TrainerEnding.FINISHED)
        torch.save(seen, Path(run_folder) / "results.pt")
    ranks.leave()


def built(model: Path, run_folder: Path, dtype: str, ranks: Ranks) -> LearnerGroup:
    return LearnerGroup.build(
        make_config(model, run_folder, recipe=RECIPE, model={**MODEL, "dtype": dtype}), ranks
    )


def drive(group: LearnerGroup) -> dict[str, Any]:
    """Update, save, go on, and go on again from what was saved."""
    initial = whole_weights(group)
    stats = [group.update(make_sequences(step)) for step in range(UPDATES)]
    weights = whole_weights(group)
    checkpoint = group.save(PolicyVersion(1, UPDATES), {"step": UPDATES}).result()
    group.update(make_sequences(7))
    further = whole_weights(group)
    restored = group.restore(checkpoint)
    back = whole_weights(group)
    group.update(make_sequences(7))
    return {
        "initial": initial,
        "loss": [s.loss for s in stats],
        "kl": [s.kl for s in stats],
        "weights": weights,
        "moved": distance(further, weights),
        "restored": restored,
        "back": back,
        "further": further,
        "resumed": whole_weights(group),
        "checkpoint": str(checkpoint),
    }


if __name__ == "__main__":
    main()
