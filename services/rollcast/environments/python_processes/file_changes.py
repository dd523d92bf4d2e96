"""Modes, owners and times of files of a private folder, changed for a process that may not do so
itself.

A path is read once, and the kernel opens the file beneath the folder. So what the process changes
meanwhile, in its memory or in the folder, cannot lead outside.
"""

import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rollcast.environments.python_processes.folder_calls import as_int
from rollcast.processes.linux import CURRENT_FOLDER, LIBC, At, Resolve, check

_OWN_DESCRIPTOR = re.compile(rb"/proc/(?:self|thread-self)/fd/([0-9]{1,9})")
_TWO_TIMES = struct.Struct("=4q")
_TWO_SECONDS = struct.Struct("=2q")

Change = Callable[[str], None]
"""Changes the file at a path. Raises OSError."""


class _How(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]


@dataclass(frozen=True, slots=True)
class FileChange:
    """One system call. `path` is an address; None = the open file `folder` itself."""

    folder: int
    path: int | None
    flags: int
    change: Change


class FileChanges:
    def __init__(self, private_folder: Path) -> None:
        self._private_folder = os.fsencode(private_folder)
        self._root = os.open(private_folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def carry_out(
        self, name: str, args: Sequence[int], pid: int, is_valid: Callable[[], bool]
    ) -> None:
        """is_valid: the process still waits for this call, so that `pid` is not another's
        meanwhile. Raises OSError.
        """
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            memory = file.fileno()
            call = _CALLS[name](args, memory)
            path = None if call.path is None else _text(memory, call.path)
        own_descriptor = None if path is None else _OWN_DESCRIPTOR.fullmatch(path)
        if path is None:
            file_handle = self._open_descriptor(pid, call.folder)
        elif own_descriptor is not None:
            # How the C library changes the mode of anything except links
            file_handle = self._open_descriptor(pid, int(own_descriptor[1]))
        else:
            file_handle = self._open_beneath(self._relative(pid, call.folder, path), call.flags)
        try:
            # The process may have ended while it was read, and its number may be another's now.
            if not is_valid():
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
            # By the handle: the path may lead elsewhere by now.
            call.change(f"/proc/self/fd/{file_handle}")
        finally:
            os.close(file_handle)

    def _relative(self, pid: int, folder: int, path: bytes) -> bytes:
        """The path from the private folder on. Raises OSError if it begins elsewhere."""
        if not path.startswith(b"/"):
            base = f"/proc/{pid}/cwd" if folder == CURRENT_FOLDER else f"/proc/{pid}/fd/{folder}"
            path = os.readlink(os.fsencode(base)) + b"/" + path
        if path != self._private_folder and not path.startswith(self._private_folder + b"/"):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return path[len(self._private_folder) :].lstrip(b"/") or b"."

    def _open_beneath(self, relative: bytes, flags: int) -> int:
        """A handle of a file of the folder. Raises OSError."""
        no_follow = os.O_NOFOLLOW if flags & At.SYMLINK_NOFOLLOW else 0
        how = _How(os.O_PATH | os.O_CLOEXEC | no_follow, 0, Resolve.BENEATH | Resolve.NO_MAGICLINKS)
        path = ctypes.c_char_p(relative)
        # Every architecture has the same number
        return check(LIBC.syscall(437, self._root, path, ctypes.byref(how), ctypes.sizeof(how)))

    def _open_descriptor(self, pid: int, number: int) -> int:
        """A handle of the file that a process has open, if it is of the folder. Raises OSError."""
        handle = os.open(f"/proc/{pid}/fd/{number}", os.O_PATH | os.O_CLOEXEC)
        target_path = os.readlink(os.fsencode(f"/proc/self/fd/{handle}"))
        if target_path != self._private_folder and not target_path.startswith(
            self._private_folder + b"/"
        ):
            os.close(handle)
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return handle


def _mode(mode: int) -> Change:
    def change(path: str) -> None:
        # The handle is of the link itself, and Linux has no modes of links.
        if stat.S_ISLNK(os.stat(path, follow_symlinks=True).st_mode):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        os.chmod(path, mode & 0o7777)

    return change


def _times(memory: int, address: int, read_times: Callable[[int, int], bytes]) -> Change:
    """read_times: from an address of the process, as `utimensat` takes them; 0 = now."""
    times = read_times(memory, address) if address else None

    def change(path: str) -> None:
        check(LIBC.utimensat(CURRENT_FOLDER, path.encode(), times, 0))

    return change


def _owner(user: int, group: int) -> Change:
    return lambda path: os.chown(path, as_int(user), as_int(group))


def _text(memory: int, address: int) -> bytes:
    """A text of the process, up to its zero. Raises OSError."""
    content = b""
    # Longest path that a system call takes, with its zero; also the smallest page of memory.
    max_path_bytes = 4096
    while len(content) < max_path_bytes:
        size = (
            max_path_bytes - (address + len(content)) % max_path_bytes
        )  # the next page may not be there
        chunk, zero, _ = _read(memory, address + len(content), size).partition(b"\0")
        content += chunk
        if zero:
            return content
    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))


def _numbers(memory: int, address: int, layout: struct.Struct) -> tuple[int, ...]:
    return layout.unpack(_read(memory, address, layout.size))


def _read(memory: int, address: int, size: int) -> bytes:
    """Raises OSError if the process has no such memory."""
    # Above the memory of any process
    content = os.pread(memory, size, address) if address < (1 << 62) else b""
    if len(content) < size:
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
    return content


def _from_nanoseconds(memory: int, address: int) -> bytes:
    return _read(memory, address, _TWO_TIMES.size)


def _from_microseconds(memory: int, address: int) -> bytes:
    access_seconds, access, change_seconds, change = _numbers(memory, address, _TWO_TIMES)
    return _TWO_TIMES.pack(access_seconds, access * 1_000, change_seconds, change * 1_000)


def _from_seconds(memory: int, address: int) -> bytes:
    access, change = _numbers(memory, address, _TWO_SECONDS)
    return _TWO_TIMES.pack(access, 0, change, 0)


def _at_path(path: int, change: Change, flags: int = 0) -> FileChange:
    return FileChange(CURRENT_FOLDER, path, flags, change)


def _at(folder: int, path: int | None, change: Change, flags: int = 0) -> FileChange:
    return FileChange(as_int(folder), path, flags, change)


_CALLS: Mapping[str, Callable[[Sequence[int], int], FileChange]] = {
    "chmod": lambda args, _: _at_path(args[0], _mode(args[1])),
    "fchmod": lambda args, _: _at(args[0], None, _mode(args[1])),
    "fchmodat": lambda args, _: _at(args[0], args[1], _mode(args[2])),
    "fchmodat2": lambda args, _: _at(args[0], args[1], _mode(args[2]), args[3]),
    "chown": lambda args, _: _at_path(args[0], _owner(*args[1:3])),
    "lchown": lambda args, _: _at_path(args[0], _owner(*args[1:3]), At.SYMLINK_NOFOLLOW),
    "fchown": lambda args, _: _at(args[0], None, _owner(*args[1:3])),
    "fchownat": lambda args, _: _at(args[0], args[1], _owner(*args[2:4]), args[4]),
    "utime": lambda args, memory: _at_path(args[0], _times(memory, args[1], _from_seconds)),
    "utimes": lambda args, memory: _at_path(args[0], _times(memory, args[1], _from_microseconds)),
    "futimesat": lambda args, memory: _at(
        args[0], args[1] or None, _times(memory, args[2], _from_microseconds)
    ),
    "utimensat": lambda args, memory: _at(
        args[0], args[1] or None, _times(memory, args[2], _from_nanoseconds), args[3]
    ),
}
"""What each system call changes, by its arguments and the memory of its process."""
