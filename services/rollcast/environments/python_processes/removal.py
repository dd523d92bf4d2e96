"""Remove a folder with everything in it, whatever its depth, its number of files and their modes.

python -I -S removal.py FOLDER...    goes on in the background: a quarter of a million files take
                                     seconds

Folders inside are moved up before they are emptied: no recursion, no path that is too long, few
open descriptors. Nothing is followed: a program that still runs may put a link in the place of a
folder.
"""

import contextlib
import os
import stat
import sys

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: str) -> None:
    """Remove a folder. Files that cannot be removed stay, without an error."""
    with contextlib.suppress(OSError):
        root = open_folder(folder, None)
        try:
            _empty(root)
        finally:
            os.close(root)
        os.rmdir(folder)


def _empty(root: int) -> None:
    waiting = _clear(root, root)
    # Folders of one tree that are emptied. A process that still lives may make new ones without
    # end.
    for _ in range(1_000_000):
        if not waiting:
            return
        name = waiting.pop()
        with contextlib.suppress(OSError):
            folder = open_folder(name, root)
            try:
                waiting += _clear(folder, root)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=root)


def _clear(folder: int, root: int) -> list[str]:
    """Unlink the files of a folder and move its folders up into `root`; returns their new names."""
    moved = []
    with os.scandir(folder) as entries:
        folder_entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in folder_entries:
        with contextlib.suppress(OSError):
            if is_folder:
                _allow_owner(name, folder)  # else it could not be moved
                new_name = f".removed-{os.urandom(12).hex()}"
                os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=root)
                moved.append(new_name)
            else:
                os.unlink(name, dir_fd=folder)
    return moved


def open_folder(name: str, parent: int | None) -> int:
    """A descriptor of a folder, which its owner may read from now on. Raises OSError."""
    _allow_owner(name, parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _allow_owner(name: str, parent: int | None) -> None:
    """Let the owner of a folder read, write and enter it. Raises OSError."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
    finally:
        os.close(handle)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()  # goes on if what started it is ended with its group
    for argument in sys.argv[1:]:
        remove_tree(argument)
