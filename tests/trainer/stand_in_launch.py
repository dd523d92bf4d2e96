"""The launcher as a program, with little patience and with ranks that a test wrote in place of the
trainer's.

python -m tests.trainer.stand_in_launch RANK_FILE LAUNCHER_ARGUMENT...
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from rollcast.trainer import launch, named_trainer


def main() -> int:
    rank_file = sys.argv.pop(1)
    os.environ.pop("LOCAL_WORLD_SIZE", None)  # vLLM sets it in a test process that has imported it

    def stand_in(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        assert command[1:3] == ["-m", "rollcast.trainer"], command
        return subprocess.Popen([command[0], rank_file, *command[3:]], **options)

    launch.LOST_RANK_PATIENCE_SECONDS = 3.0  # on a busy machine ranks that end together do not
    launch.RESTART_PAUSE_SECONDS = 0.5
    launch.MIN_WORK_SECONDS = float(os.environ.get("MIN_WORK_SECONDS", "600"))
    named_trainer.READ_INTERVAL_SECONDS = 0.1
    named_trainer.PATIENCE_SECONDS = 1.0
    launch.subprocess.Popen = stand_in  # type: ignore[attr-defined]  # of a fork, which has its own
    return launch.main()


if __name__ == "__main__":
    sys.exit(main())
