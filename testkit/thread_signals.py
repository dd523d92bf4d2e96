"""Signals to one thread of a process, as the kernel may choose it."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path


def terminate_beside_the_main_thread(pid: int) -> None:
    """SIGTERM to a thread that takes it and is not the main one, which a signal to the whole
    process may reach too.
    """
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda task: int(task.name)):
        status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        blocked = int(status["SigBlk"], 16) >> (signal.SIGTERM - 1) & 1
        if int(task.name) != pid and not blocked:
            if (
                ctypes.CDLL(None, use_errno=True).tgkill(pid, int(task.name), int(signal.SIGTERM))
                != 0
            ):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            return
    raise AssertionError(f"process {pid} has no other thread that takes signals")
