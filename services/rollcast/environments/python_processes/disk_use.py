"""How much disk an environment of the profile folder takes: its private folder, and files that have
no name any more.

Not seen: files without a name that are only mapped into memory, or on their way through a socket.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rollcast.environments.python_processes.removal import open_folder

MIN_ENTRY_BYTES = 4096
"""An empty file takes an inode and a place in its folder: counted as a block, because disks run out
of inodes too."""
BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system's own is."""


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """Limits of one environment."""

    num_bytes: int = 1 << 30
    num_entries: int = 100_000
    """Files and folders. Disks run out of inodes, and counting and removing them takes time."""
    depth: int = 100
    """Folders inside each other."""


def excess(
    folder: Path,
    processes: Iterable[int],
    limits: DiskLimits,
    pause: Callable[[], None] = lambda: None,
    opened_by: Callable[[str, int | None], int] = open_folder,
) -> str:
    """The exceeded limit, in words; empty = none.

    Counting stops there, and calls `pause` again and again. opened_by: gives the descriptor of a
    folder by its name and its parent's descriptor.
    """
    num_bytes = sum(_nameless(processes))
    entries = _entries(folder, limits.depth, opened_by)
    for num_entries, (size, depth) in enumerate(entries, start=1):
        num_bytes += size
        if num_entries > limits.num_entries:
            return f"it had more than the {limits.num_entries:,} files that are allowed"
        if depth > limits.depth:
            return f"it had more than the {limits.depth} folders inside each other that are allowed"
        if num_bytes > limits.num_bytes:
            break
        # Counting a hundred thousand files takes most of a second
        if num_entries % 500 == 0:
            pause()
    if num_bytes > limits.num_bytes:
        return f"its files took more than the {limits.num_bytes >> 20} MiB that are allowed"
    return ""


def open_unchanged(name: str, parent: int | None) -> int:
    """A descriptor of a folder whose rights stay as they are. Raises OSError."""
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _entries(
    folder: Path, max_depth: int, opened_by: Callable[[str, int | None], int]
) -> Iterator[tuple[int, int]]:
    """Size and depth of everything below the folder.

    Folders are opened from their parents: no path is too long.
    """
    opened = [_ReadFolder(str(folder), None, opened_by)]
    try:
        while opened:
            entry = opened[-1].next_entry()
            if entry is None:
                opened.pop().close()
                continue
            with contextlib.suppress(OSError):  # it is gone already
                is_folder = entry.is_dir(follow_symlinks=False)
                depth = len(opened) if is_folder else len(opened) - 1
                yield (
                    max(entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES, MIN_ENTRY_BYTES),
                    depth,
                )
                if is_folder and depth <= max_depth:
                    opened.append(_ReadFolder(entry.name, opened[-1].descriptor, opened_by))
    finally:
        for inner in opened:
            inner.close()


class _ReadFolder:
    """A folder whose entries are read one by one. One that was removed has no entries."""

    def __init__(
        self, name: str, parent: int | None, opened_by: Callable[[str, int | None], int]
    ) -> None:
        self.descriptor = -1
        self._stack = contextlib.ExitStack()
        self._entries: Iterator[os.DirEntry[str]] = iter(())
        with contextlib.suppress(OSError):
            # A folder that its owner may not read is made readable: it would hide its content.
            self.descriptor = opened_by(name, parent)
            self._stack.callback(os.close, self.descriptor)
            self._entries = self._stack.enter_context(os.scandir(self.descriptor))

    def next_entry(self) -> "os.DirEntry[str] | None":
        """None = there is no further one."""
        try:
            return next(self._entries, None)
        except OSError:
            return None

    def close(self) -> None:
        self._stack.close()


def _nameless(processes: Iterable[int]) -> Iterator[int]:
    """Sizes of the files that were removed and are still open.

    Each is counted once, however many have it open.
    """
    counted_files: set[tuple[int, int]] = set()
    for pid in processes:
        descriptors = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for number in os.listdir(descriptors):
                with contextlib.suppress(OSError):
                    status = os.stat(f"{descriptors}/{number}")
                    if (
                        stat.S_ISREG(status.st_mode)
                        and not status.st_nlink
                        and (status.st_dev, status.st_ino) not in counted_files
                    ):
                        counted_files.add((status.st_dev, status.st_ino))
                        yield status.st_blocks * BLOCK_BYTES
