"""Trains on recorded groups, alone: one JSON line with the median seconds of a batch."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

from rollcast.config.run import load_run_config
from rollcast.rollouts.codec import decode_group
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion


def main(folder: Path) -> None:
    config = load_run_config(folder / "run.yaml")
    assert config.trainer.cpu is not None
    os.sched_setaffinity(0, {config.trainer.cpu})
    ranks = join_ranks(timeout_seconds=60.0, threads=1)
    learners = LearnerGroup.build(config, ranks)
    groups = [decode_group(path.read_bytes()) for path in sorted(folder.glob("*.group"))]
    size = config.recipe.prompts_per_step
    updates: list[float] = []
    batches: list[float] = []
    for start in range(0, len(groups), size):
        started = time.perf_counter()
        batch = assemble(groups[start : start + size], config.recipe)
        stats = learners.update(batch.sequences)
        learners.stage(0, PolicyVersion(1, len(updates)))
        batches.append(time.perf_counter() - started)
        updates.append(stats.seconds)
    ranks.leave()
    print(json.dumps({"batch_seconds": median(batches[1:]), "update_seconds": median(updates[1:])}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
