"""How much disk an environment of the profile folder takes: its private folder, and files that have no name any more.

Not seen: files without a name that are only mapped into memory, or on their way through a socket.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

MIN_ENTRY_BYTES = 4096
"""An empty file takes an inode and a place in its folder: counted as a block, because disks run out of inodes too."""
BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


def used_bytes(folder: Path, processes: Iterable[int], enough_bytes: int) -> int:
    """Bytes of all files in the folder, and of those without a name that its processes have open.

    Counting stops above `enough_bytes`, so that millions of files do not keep the guard from its other limits.
    """
    total = 0
    for size in itertools.chain(_nameless(processes), _entries(folder)):
        total += size
        if total > enough_bytes:
            break
    return total


def _entries(folder: Path) -> Iterator[int]:
    """Sizes of everything below the folder."""
    folders = [str(folder)]
    while folders:
        with contextlib.suppress(OSError), _opened(folders.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # it is gone already
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    yield max(entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES, MIN_ENTRY_BYTES)


def _opened(folder: str) -> "contextlib.AbstractContextManager[Iterator[os.DirEntry[str]]]":
    """A folder that its owner may not read is made readable: it would hide its content. Raises OSError."""
    try:
        return os.scandir(folder)
    except PermissionError:
        os.chmod(folder, stat.S_IRWXU)
        return os.scandir(folder)


def _nameless(processes: Iterable[int]) -> Iterator[int]:
    """Sizes of the files that were removed and are still open. Each is counted once, however many have it open."""
    seen: set[tuple[int, int]] = set()
    for pid in processes:
        descriptors = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for number in os.listdir(descriptors):
                with contextlib.suppress(OSError):
                    found = os.stat(f"{descriptors}/{number}")
                    if stat.S_ISREG(found.st_mode) and not found.st_nlink and (found.st_dev, found.st_ino) not in seen:
                        seen.add((found.st_dev, found.st_ino))
                        yield found.st_blocks * BLOCK_BYTES
