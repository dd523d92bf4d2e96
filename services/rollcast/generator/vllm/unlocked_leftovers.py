"""What engines left in the temporary folder before their folders had locks: nothing tells whose it is.

So only what cannot be in use is removed: it is this user's, nobody touched it for an hour, and no process of this user
that has torch loaded is as old as it. A vLLM of somebody else's making writes the same names; it is spared alike. In
another container with the same temporary folder its processes are not seen: there the hour alone must do, and does, as
sockets are connected and workers have met within minutes of the start.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import psutil

UNTOUCHED_SECONDS = 3600.0
CLOCK_SECONDS = 60.0
"""By which a process that made a file may seem younger than it, by clocks that were set."""


def clear_unlocked(folder_prefix: str, lock: str) -> int:
    """Remove such folders, and files over which workers met; returns how many."""
    temporary = Path(tempfile.gettempdir())
    folders = [path for path in temporary.glob(f"{folder_prefix}*") if not any(path.glob(f"{lock}*"))]
    touched = {path: _touched(path) for path in [*folders, *temporary.glob("vllm_dist_*")]}
    untouched_since = time.time() - UNTOUCHED_SECONDS
    old = {path: at for path, at in touched.items() if at is not None and at < untouched_since}
    oldest_start = _oldest_start() if old else 0.0
    unused = [path for path, at in old.items() if at + CLOCK_SECONDS < oldest_start]
    for path in unused:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return len(unused)


def _touched(path: Path) -> float | None:
    """Unix time; None where it is gone, another user's, or neither a folder nor a file."""
    try:
        status = path.lstat()
    except OSError:
        return None
    is_plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
    return status.st_mtime if is_plain and status.st_uid == os.getuid() else None


def _oldest_start() -> float:
    """Unix time at which the oldest of this user's processes that have torch loaded was started."""
    starts = [time.time()]
    for process in psutil.process_iter():
        try:
            if process.uids().real == os.getuid() and any(
                "libtorch" in region.path for region in process.memory_maps()
            ):
                starts.append(process.create_time())
        except (psutil.Error, OSError):
            continue  # it ended, or hides its memory as no engine does
    return min(starts)
