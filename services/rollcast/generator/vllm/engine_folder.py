"""An engine's temporary files, in one folder that is removed with the engine, however the engine
ends.

    make -> locked by this process
         -> close(), or this process dies -> cleared by its warden
            both die together             -> cleared by the engine itself, if it is at work
            all of them die               -> cleared when the next generator starts here
"""

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import BinaryIO

from rollcast.generator.vllm import engine_warden
from rollcast.processes.locked_folder import LOCK, LockedFolder, take_abandoned
from rollcast.telemetry.logging import get_logger

PREFIX = "rollcast-engine-"

log = get_logger()


class EngineFolder(LockedFolder):
    """Made before anything of the engine is; `close` after the engine has ended."""

    def __init__(self) -> None:
        clear_abandoned()
        super().__init__(PREFIX)
        self._warden = subprocess.Popen(  # noqa: S603  # our own program
            [sys.executable, "-I", "-S", engine_warden.__file__, str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            # what ends the generator with all its group must not end this one
            start_new_session=True,
        )

    @contextmanager
    def environment(self) -> Iterator[None]:
        """The variables that processes of the engine inherit, by which they are recognised."""
        # It releases the shared memory after the engine has ended, so it must not be killed with
        # the engine.
        resource_tracker.ensure_running()
        settings = {
            engine_warden.FOLDER_VARIABLE: str(self.path),
            # else vLLM's process titles overwrite the environment that is visible in /proc
            "SPT_NOENV": "1",
        }
        former_values = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            yield
        finally:
            for name, value in former_values.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value

    def close(self) -> None:
        """End the remaining processes of the engine and remove its files."""
        assert self._warden.stdin is not None
        self._warden.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._warden.wait(2 * engine_warden.CLEAR_SECONDS)
        self.unlock()


def end_with_generator() -> None:
    """Called in a process of the engine: when the generator ends, it clears the engine and the
    folder, and ends.

    This is for the case that the warden was killed too. It waits for the lock instead of the
    parent, because a worker's parent may be the engine, and a process id may be reused before it is
    read.
    """
    folder = Path(os.environ[engine_warden.FOLDER_VARIABLE])
    lock = (folder / LOCK).open("rb")
    threading.Thread(
        target=_clear_and_end, args=(folder, lock), name="end-with-generator", daemon=True
    ).start()


def _clear_and_end(folder: Path, lock: BinaryIO) -> None:
    fcntl.flock(
        lock, fcntl.LOCK_SH
    )  # shared: all workers may hold it together, but no other generator
    engine_warden.clear(str(folder))
    os._exit(1)


def clear_abandoned() -> None:
    """Remove the folders of generators that have ended, with the processes that use them; logs how
    many.
    """
    abandoned = take_abandoned(PREFIX)
    processes = 0
    for path, lock in abandoned.items():
        with lock:
            processes += engine_warden.clear(str(path))
    if abandoned:
        log.warning(
            "cleared what generators left behind", folders=len(abandoned), processes=processes
        )
