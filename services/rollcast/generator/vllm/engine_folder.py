"""An engine's temporary files, in one folder that is gone when the engine is: in good order, by force, or later.

    make -> locked by this process -> close(), or this process dies -> cleared by its warden
                                      both died at once             -> cleared by the engine itself, if it is at work
                                      all of them died              -> cleared when the next generator starts here

The lock goes with its process, however that ends; so whoever can take it knows that nobody uses the folder.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import BinaryIO

from rollcast.generator.vllm import engine_warden
from rollcast.generator.vllm.unlocked_leftovers import clear_unlocked
from rollcast.telemetry.logging import get_logger

PREFIX = "rollcast-engine-"
LOCK = "in-use"

log = get_logger()


class EngineFolder:
    """Made before anything of the engine is; `close` after the engine has ended."""

    def __init__(self) -> None:
        clear_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        new = self.path / f"{LOCK}.new"
        self._lock = new.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)  # from here on another generator may look at it
        self._warden = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-I", "-S", engine_warden.__file__, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # what ends the generator with all its group must not end this one
        )

    @contextmanager
    def environment(self) -> Iterator[None]:
        """What processes of the engine inherit, and are known by."""
        # It releases shared memory when all of the engine has ended, and ends after it: so it is none of them.
        resource_tracker.ensure_running()
        settings = {
            engine_warden.FOLDER_VARIABLE: str(self.path),
            "SPT_NOENV": "1",  # else the title that vLLM gives a process overwrites the environment that others see
        }
        before = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    def close(self) -> None:
        """End what is left of the engine and remove its files."""
        assert self._warden.stdin is not None
        self._warden.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._warden.wait(2 * engine_warden.CLEAR_SECONDS)
        self._lock.close()


def end_with_generator() -> None:
    """For a process of the engine: from now on it ends, with the others and the folder, when the generator does.

    The second line behind the warden, which may be killed too. The lock is asked rather than the parent: a worker's
    parent may be the engine, and a number of a process may be another's by the time that it is read.
    """
    folder = Path(os.environ[engine_warden.FOLDER_VARIABLE])
    lock = (folder / LOCK).open("rb")
    threading.Thread(target=_clear_and_end, args=(folder, lock), name="end-with-generator", daemon=True).start()


def _clear_and_end(folder: Path, lock: BinaryIO) -> None:
    fcntl.flock(lock, fcntl.LOCK_SH)  # shared: all workers may have it at once, and another generator may not
    engine_warden.clear(str(folder))
    os._exit(1)


def clear_abandoned() -> None:
    """Remove the folders of generators that have ended, with the processes that use them; logs how many."""
    folders, processes = clear_unlocked(PREFIX, LOCK), 0
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if (lock := _take_over(path)) is not None:
            with lock:
                processes += engine_warden.clear(str(path))
            folders += 1
    if folders:
        log.warning("cleared what generators left behind", folders=folders, processes=processes)


def _take_over(folder: Path) -> BinaryIO | None:
    """Its lock, where it is ours to remove; None where it is in use, another user's, or made this very moment."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        lock = (folder / LOCK).open("rb")
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
