"""Run as a process: one rank of four, two replicas of two shards each. Rank 0 drives the learner.

python -m tests.trainer.replicas MODEL RUN_FOLDER        with torchrun's environment variables
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences
from tests.trainer.two_ranks import whole_weights

SHARD_RANKS = 2
WORLD_SIZE = 4
UPDATES = 2


def main() -> None:
    model, run_folder = sys.argv[1:]
    folder = Path(run_folder)
    ranks = join_ranks(timeout_seconds=30, threads=1, shard_ranks=SHARD_RANKS)
    # Ranks that are well are compared after each update.
    config = make_config(Path(model), folder, trainer={"checkpoint_every_steps": 1})
    group = LearnerGroup.build(config, ranks)
    results: dict[str, object] = {}
    if ranks.rank > 0:
        assert group.follow() is TrainerEnding.FINISHED
    else:
        stats = [group.update(make_sequences(step, num_groups=12)) for step in range(UPDATES)]
        group.stage(0, PolicyVersion(1, UPDATES))
        checkpoint = group.save(PolicyVersion(1, UPDATES), {}).result()
        weights = whole_weights(group)
        group.update(make_sequences(9))
        group.restore(checkpoint)
        results = {
            "loss": [one.loss for one in stats],
            "grad_norm": [one.grad_norm for one in stats],
            "micro_batches": [one.micro_batches for one in stats],
            "weights": weights,
            "restored": whole_weights(group),
            "checkpoint": str(checkpoint),
        }
        group.stop(TrainerEnding.FINISHED)
    weight = group.learner.weights[0]
    assert isinstance(weight, DTensor)
    results["rows"] = weight.to_local().clone()
    results["staged_bytes"] = sum(buffer.numel() for buffer in group.slots[0].buffers)
    torch.save(results, folder / f"rank-{ranks.rank}.pt")
    ranks.leave()


if __name__ == "__main__":
    main()
