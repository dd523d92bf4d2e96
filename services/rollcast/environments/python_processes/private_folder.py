"""Private folders of environments, all below one folder of their fork server.

generator      rollcast-environments-XXXX/      locked while the generator lives, which removes
                                                the rest
fork server        environment-YYYY/home, shm   one for each environment; its guard removes it
next start                                      removes the folders of generators that have ended
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rollcast.environments.python_processes import removal
from rollcast.processes.locked_folder import LockedFolder, take_abandoned

PREFIX = "rollcast-environments-"


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


class PrivateFolders(LockedFolder):
    """The folder of one generator for the private folders of one environment of the run file."""

    def __init__(self) -> None:
        """Also removes what generators that have ended left behind."""
        remove_abandoned()
        super().__init__(PREFIX)
        self.path = self.path.resolve()

    def close(self) -> None:
        """Remove the folder, when every environment has ended or is about to."""
        start_removal([self.path])
        # How long the end of a generator waits for a removal, which goes on without it
        deadline = time.monotonic() + 5.0
        while self.path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.unlock()


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
    locks = take_abandoned(PREFIX)
    if locks:
        start_removal(locks)
    for lock in locks.values():
        lock.close()
