"""Private folders of environments, all below one folder of their fork server.

generator      rollcast-environments-XXXX/      locked while the generator lives, which removes
                                                the rest
fork server        environment-YYYY/home, shm   one for each environment; its guard removes it
next start                                      removes the folders of generators that have ended
"""

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rollcast.environments.hosted import removal

PREFIX = "rollcast-environments-"
LOCK = "in-use"


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """The files of one environment."""

    path: Path

    @property
    def home(self) -> Path:
        """The folder that it works in."""
        return self.path / "home"

    @property
    def shared_memory(self) -> Path:
        """The folder that is its /dev/shm, if it has a file tree of its own."""
        return self.path / "shm"

    @classmethod
    def make(cls, parent: Path) -> "PrivateFolder":
        """Raises OSError."""
        private = cls(Path(tempfile.mkdtemp(prefix="environment-", dir=parent)))
        private.home.mkdir()
        private.shared_memory.mkdir()
        return private

    def remove(self) -> None:
        """Takes seconds if there are many files: call it in a process of its own."""
        removal.remove_tree(str(self.path))


class PrivateFolders:
    """The folder of one generator for the private folders of one environment of the run file."""

    def __init__(self) -> None:
        """Also removes what generators that have ended left behind."""
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        new = self.path / f"{LOCK}.new"
        self._lock = new.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)  # from here on another generator may look at it

    def close(self) -> None:
        """Remove the folder, when every environment has ended or is about to."""
        start_removal([self.path])
        # How long the end of a generator waits for a removal, which goes on without it
        deadline = time.monotonic() + 5.0
        while self.path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._lock.close()


def start_removal(folders: Iterable[Path]) -> None:
    """Remove folders in a process that outlives this one."""
    subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "-I", "-S", removal.__file__, *map(str, folders)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        check=False,
    )


def remove_abandoned() -> None:
    """Start the removal of the folders of generators that have ended."""
    locks = {
        path: lock
        for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*")
        if (lock := _take_over(path))
    }
    if locks:
        start_removal(locks)
    for lock in locks.values():
        lock.close()


def _take_over(folder: Path) -> BinaryIO | None:
    """The folder's lock if this process may remove it; None if it is in use, another user's, or
    being made.
    """
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
