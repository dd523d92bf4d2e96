"""The folder of a harness, locked while its generator or its keeper lives. Either removes it; the
next generator on the machine removes those of which both were killed.
"""

import fcntl
import os
import tempfile
import time
from pathlib import Path

from rollcast.environments.python_processes.private_folder import start_removal

PREFIX = "rollcast-harness-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder() -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock until it is closed."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    return folder, lock_folder(folder)


def lock_folder(folder: Path) -> int:
    """The descriptor that holds the lock, with others."""
    descriptor = os.open(folder, _FOLDER)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def remove_abandoned() -> None:
    """Start the removal of this user's folders that no process has locked."""
    abandoned = [
        folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_abandoned(folder)
    ]
    if abandoned:
        start_removal(abandoned)


def _is_abandoned(folder: Path) -> bool:
    try:
        status = folder.lstat()
        # A younger folder may be one that its generator is about to lock
        if status.st_uid != os.getuid() or time.time() - status.st_mtime < 10.0:
            return False
        descriptor = os.open(folder, _FOLDER)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
