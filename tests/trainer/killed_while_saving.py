"""Run as a process: a trainer that is killed while it saves a checkpoint, after one that is whole.

python -m tests.trainer.killed_while_saving MODEL RUN_FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences


def killed(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    model, run_folder = map(Path, sys.argv[1:])
    group = LearnerGroup.build(
        make_config(model, run_folder), join_ranks(timeout_seconds=30, threads=1)
    )
    for step in range(3):
        group.update(make_sequences(step))
    group.save(PolicyVersion(1, 3), {"next": 3}).result()
    group.update(make_sequences(3))
    Path.rename = killed  # type: ignore[method-assign, assignment]
    group.save(PolicyVersion(1, 4), {"next": 4}).result()


if __name__ == "__main__":
    main()
