"""Run as a process: a trainer that is killed while it removes an old checkpoint.

python -m tests.trainer.killed_while_removing MODEL RUN_FOLDER
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config


def killed(path: Path, **_: Any) -> Any:
    next(path.glob("*.distcp")).unlink()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    model, run_folder = map(Path, sys.argv[1:])
    config = make_config(model, run_folder, trainer={"keep_checkpoints": 1})
    group = LearnerGroup.build(config, join_ranks(timeout_seconds=30, threads=1))
    group.choose_best = lambda names: {"1.1"}
    for step in (1, 2, 3):
        if step == 3:
            shutil.rmtree = killed  # type: ignore[assignment]
        group.save(PolicyVersion(1, step), {"next": step}).result()


if __name__ == "__main__":
    main()
