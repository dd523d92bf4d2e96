"""The folder of one run: whose it is, and whether it holds a run already."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder import files
from rollcast.runfolder.format_version import check_format

_HISTORY = (files.CHECKPOINTS, files.EVALUATIONS, files.STEPS)
_LEFT_BEHIND = (
    files.TASKS,
    files.COMPUTE,
    files.FORMAT,
    files.INCARNATIONS,
    files.FORECASTS,
    f"{files.FORECASTS}-wal",
    f"{files.FORECASTS}-shm",
)
"""By a start that was killed before it made any history."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder for this process. Raises UserError where another one has it or it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+")
    except OSError as error:
        raise UserError(
            f"folder = {folder}: cannot be written ({error.strerror}); set `folder` to one that can"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read(32).strip()
            raise UserError(
                f"run folder {folder}: process {holder} is running it; stop that one or choose another name for `run`"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def has_history(folder: Path) -> bool:
    """Whether a run has trained or evaluated there."""
    return any(os.path.exists(folder / name) for name in _HISTORY)  # Path.exists raises where it may not look


def prepare(folder: Path, *, resume: bool) -> None:
    """Remove what a former start left that no process may read: ports, and all that a run without history wrote.

    Raises UserError where the folder holds a run and it is not resumed, or one that this release cannot read.
    """
    check_format(folder)
    if has_history(folder) and not resume:
        raise UserError(
            f"run folder {folder}: holds a run already; continue it with --resume, or choose another name for `run`"
        )
    shutil.rmtree(folder / "ports", ignore_errors=True)
    if not has_history(folder):
        shutil.rmtree(folder / "redis", ignore_errors=True)
        for name in _LEFT_BEHIND:
            (folder / name).unlink(missing_ok=True)
