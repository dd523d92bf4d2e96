"""A file tree of one's own, in which nothing can be changed except the private folder.

unshare -> everything read-only, recursively -> the private folder writable
        -> /dev/shm is a folder of its own

The kernel then refuses modes, times, owners and attributes of other files too, which Landlock does
not cover. Root needs CAP_SYS_ADMIN, another user a user namespace; containers often forbid both.
"""

import ctypes
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from rollcast.environments.python_processes.private_folder import PrivateFolder
from rollcast.processes.linux import CURRENT_FOLDER, LIBC, At, Mount, Namespace, check
from rollcast.tasks.sandbox.lockdown import show_descriptors

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # the C library looks for it there


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace")]


def enter_private_mounts(private: PrivateFolder) -> None:
    """Raises OSError if the machine does not allow it."""
    _unshare()
    # The mounts below must not appear in the file tree of the machine.
    check(LIBC.mount(None, b"/", None, Mount.RECURSIVE | Mount.PRIVATE, None))
    writable = [(private.home, private.home)]
    if SHARED_MEMORY.is_dir():
        writable.append((private.shared_memory, SHARED_MEMORY))
    # Each becomes a mount of its own, which can be writable below a read-only one.
    for source, target in writable:
        check(LIBC.mount(os.fsencode(source), os.fsencode(target), None, Mount.BIND, None))
    read_only = 0x1
    _set_attributes(Path("/"), At.RECURSIVE, _Attributes(set=read_only))
    for _, target in writable:
        _set_attributes(target, 0, _Attributes(clear=read_only))
    os.chdir(private.home)
    _reopen_standard_streams()


def are_allowed() -> bool:
    """Whether this machine allows `enter_private_mounts`: a process tries it."""
    with tempfile.TemporaryDirectory() as name:
        private = PrivateFolder.make(Path(name).resolve())

        def enter() -> None:
            enter_private_mounts(private)
            (private.home / "written").touch()

        return succeeds_in_fork(enter)


def succeeds_in_fork(run: Callable[[], None]) -> bool:
    """Whether a fork of this process can do it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _unshare() -> None:
    """A namespace of mounts; with one of users around it unless this process may change mounts
    itself.
    """
    if LIBC.unshare(Namespace.MOUNTS) == 0:
        return
    user = os.getuid()
    group = os.getgid()
    check(LIBC.unshare(Namespace.USERS | Namespace.MOUNTS))
    show_descriptors()  # a change of rights hid them, and with them the files below
    for file, content in (
        # Without it the kernel refuses `gid_map` to users without rights.
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        Path(f"/proc/self/{file}").write_text(content)


def _set_attributes(path: Path, flags: int, attributes: _Attributes) -> None:
    size = ctypes.sizeof(attributes)
    check(
        LIBC.syscall(
            # Every architecture has the same number
            442,
            CURRENT_FOLDER,
            ctypes.c_char_p(os.fsencode(path)),
            flags,
            ctypes.byref(attributes),
            size,
        )
    )


def _reopen_standard_streams() -> None:
    """Replace the standard streams, which were opened in the old file tree: there modes can be
    changed.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        opened = os.open(os.devnull, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
