"""A temporary folder that is locked while its process lives, however that ends.

A process that can take the lock knows that the folder is not in use.
"""

import fcntl
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

LOCK = "in-use"


class LockedFolder:
    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        new = self.path / f"{LOCK}.new"
        self._lock = new.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        new.rename(self.path / LOCK)  # from here on another process may look at it

    def unlock(self) -> None:
        """Let others remove the rest of it."""
        self._lock.close()


def take_abandoned(prefix: str) -> dict[Path, BinaryIO]:
    """The folders of processes that have ended, with their locks, which this process has now."""
    candidates = Path(tempfile.gettempdir()).glob(f"{prefix}*")
    return {path: lock for path in candidates if (lock := _take_over(path)) is not None}


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
