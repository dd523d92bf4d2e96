"""The folder of one run: whose it is, its format, and whether it holds a run already.

This release reads and writes format 1 and refuses every other.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from rollcast.config.access_modes import FOLDER_MODE
from rollcast.config.errors import UserError
from rollcast.connections.port_files import ports_folder
from rollcast.runfolder import files
from rollcast.runfolder.records import STRICT, read_record
from rollcast.runfolder.writing import replace_json

NEWEST_FORMAT = 1
_HISTORY = (files.CHECKPOINTS, files.EVALUATIONS, files.STEPS)
_LEFT_BEHIND = (
    files.TASKS,
    files.COMPUTE,
    files.BEFORE,
    files.FORMAT,
    files.INCARNATIONS,
    files.SAMPLES,
    files.FORECASTS_SAID,
    files.FORECASTS,
    f"{files.FORECASTS}-wal",
    f"{files.FORECASTS}-shm",
)
"""Files that a start leaves if it is killed before it makes any history."""


@dataclass(frozen=True, slots=True)
class FormatRecord:
    """format.json."""

    __pydantic_config__ = STRICT

    format: Annotated[int, Field(ge=1)]


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold the run's folder for this process.

    Raises UserError if another process has it or it cannot be made.
    """
    try:
        folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        lock = (folder / files.LOCK).open("a+")
    except OSError as error:
        raise UserError(
            f"folder = {folder}: cannot be written ({error.strerror}); set `folder` to one that can"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _in_use(folder) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def is_held(folder: Path) -> bool:
    """Whether a process runs the run at this moment."""
    try:
        with (folder / files.LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_folder(folder: Path, *, resume: bool) -> None:
    """Check that a run may begin or continue in the folder. Changes nothing.

    Raises UserError if another process has it, if it holds a run that is not resumed, or one that
    this release cannot read.
    """
    if is_held(folder):
        raise _in_use(folder)
    _check_content(folder, resume=resume)


def has_history(folder: Path) -> bool:
    """Whether a run has trained or evaluated there."""
    return any(
        os.path.exists(folder / name) for name in _HISTORY
    )  # Path.exists raises without permission


def history_file_sizes(folder: Path) -> tuple[int, ...]:
    """Sizes of the files that a run's trainer appends to at every step and every evaluation."""
    files_of_work = (folder / name for name in (files.EVALUATIONS, files.STEPS))
    return tuple(os.path.getsize(path) if os.path.exists(path) else 0 for path in files_of_work)


def prepare(folder: Path, *, resume: bool) -> None:
    """Remove what an earlier start left and no process may read: ports, failures of verifiers, and
    all files of a run without history.

    Raises UserError if the folder holds a run that is not resumed, or one that this release cannot
    read.
    """
    _check_content(folder, resume=resume)
    shutil.rmtree(ports_folder(folder), ignore_errors=True)
    shutil.rmtree(folder / files.FAILURES, ignore_errors=True)
    if not has_history(folder):
        shutil.rmtree(folder / files.REDIS, ignore_errors=True)
        shutil.rmtree(folder / files.LOGGED, ignore_errors=True)
        for name in _LEFT_BEHIND:
            (folder / name).unlink(missing_ok=True)


def _check_content(folder: Path, *, resume: bool) -> None:
    check_format(folder)
    if has_history(folder) and not resume:
        raise UserError(
            f"run folder {folder}: holds a run already; continue it with --resume, or choose "
            "another name for `run`"
        )


def _in_use(folder: Path) -> UserError:
    with (folder / files.LOCK).open() as lock:
        holder = lock.read(32).strip()
    return UserError(
        f"run folder {folder}: process {holder} is running it; stop that one or choose another "
        "name for `run`"
    )


def check_format(folder: Path) -> None:
    """Raises UserError if the folder holds records that this release cannot read."""
    path = folder / files.FORMAT
    try:
        folder_format = read_record(path, FormatRecord).format
    except FileNotFoundError:
        if any(os.path.exists(folder / name) for name in (files.EVALUATIONS, files.STEPS)):
            raise _unknown(path) from None
        return
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); fix the permissions"
        ) from error
    except ValueError:
        raise _unknown(path) from None
    if folder_format > NEWEST_FORMAT:
        raise UserError(
            f"run folder {folder}: is written in format {folder_format}, this Rollcast knows "
            f"{NEWEST_FORMAT} at most; use the release that wrote it, or a newer one"
        )


def _unknown(path: Path) -> UserError:
    return UserError(f'{path}: does not say a format; write {{"format": {NEWEST_FORMAT}}} into it')


def mark_format(folder: Path) -> None:
    """Record the format of later records.

    Raises UserError as `check_format`, or if the disk refuses.
    """
    check_format(folder)
    if not os.path.exists(folder / files.FORMAT):
        replace_json(folder / files.FORMAT, {"format": NEWEST_FORMAT})
