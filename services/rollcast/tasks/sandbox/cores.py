"""The cores that gradings may use: as many run concurrently as there are cores, in all processes of
this user on this machine.

Each core has a lock file in a folder that only this user can enter. A grading holds the lock of one
core while it runs, whichever core the kernel then puts its processes on. A lock is gone with the
process that holds it.
"""

import contextlib
import fcntl
import math
import os
import random
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rollcast.config.errors import UserError

LONGEST_WAIT_SECONDS = 600.0
"""Wait for a core before a grading is given up without a verdict."""
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""Limit of a container, as `QUOTA PERIOD` in microseconds, or `max PERIOD`."""


def usable_cores() -> set[int]:
    """Numbers of the cores that this process may run on."""
    return os.sched_getaffinity(0)


def gradings_at_once(processes: int, setting: str) -> tuple[int, str]:
    """The number of concurrent gradings, and a sentence that says so if it is fewer than the
    setting asks for.
    """
    cores = max(1, min(len(usable_cores()), math.ceil(_quota())))
    if processes <= cores:
        return processes, ""
    sentence = (
        f"{setting} = {processes} is reduced to {cores}: each grading takes a core, and {cores} "
        "may be used here"
    )
    return cores, sentence


@contextlib.contextmanager
def one_core() -> Iterator[bool]:
    """Waits for a core that no other grading uses; False = none became free in
    LONGEST_WAIT_SECONDS.
    """
    folder = _lock_folder()
    deadline = time.monotonic() + LONGEST_WAIT_SECONDS
    first_pause_seconds = 0.002
    pause = first_pause_seconds
    longest_pause_seconds = 0.05
    while (lock := _lock_one(folder)) is None and time.monotonic() < deadline:
        time.sleep(pause * random.uniform(0.5, 1.0))  # so that two that wait do not ask in step
        pause = min(2 * pause, longest_pause_seconds)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            fcntl.flock(
                lock, fcntl.LOCK_UN
            )  # a child that was forked meanwhile holds the file open, and the lock
            os.close(lock)


def _quota() -> float:
    """Cores' worth of time that the container may use; all of its cores without a limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = map(int, _CPU_MAX.read_text().split())
        return quota / period
    return len(usable_cores())


def _lock_one(folder: Path) -> int | None:
    """The open, locked file of a core that was free."""
    cores = list(usable_cores())
    random.shuffle(cores)
    for core in cores:
        lock = os.open(
            folder / f"core-{core}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
    return None


def _lock_folder() -> Path:
    """Raises UserError if another user has put something in its place, or no file can be made
    there.
    """
    folder = Path(tempfile.gettempdir()) / f"rollcast-gradings-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        folder_status = folder.lstat()
    except OSError as error:
        raise UserError(
            f"no folder for the locks of gradings: {error}; set TMPDIR to a folder that is writable"
        ) from None
    if (
        not stat.S_ISDIR(folder_status.st_mode)
        or folder_status.st_uid != os.getuid()
        or folder_status.st_mode & 0o022
    ):
        raise UserError(
            f"{folder}: is not a folder of this user alone; remove it, or set TMPDIR to another "
            "folder"
        )
    return folder
