"""Run as a process: the second rank of a learner whose first rank is a test.

python -m tests.generator.lora_follower RUN_FILE        with torchrun's environment variables
"""

from __future__ import annotations

import sys
from pathlib import Path

from rollcast.config.run import load_run_config
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks


def main(run_file: str) -> None:
    ranks = join_ranks(timeout_seconds=60, threads=1)
    group = LearnerGroup.build(load_run_config(Path(run_file)), ranks)
    assert group.follow() is TrainerEnding.FINISHED
    ranks.leave()


if __name__ == "__main__":
    main(sys.argv[1])
