"""The system calls of the profile folder: what programs of a system need, as far as it stays in
their folder.

allowed     all that seccompy knows by name, except those below; what newer kernels add is unknown
            here
by argument calls that act on a process or thread: on the caller itself
asked       the same calls for another pid, and modes, times and owners of files without a file tree
            of one's own: the guard answers them (`supervision`)
"""

import contextlib
import errno
import socket
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

_FORBIDDEN = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease",
    "pidfd_getfd", "kcmp", "bpf", "perf_event_open", "userfaultfd", "mount", "umount2",
    "mount_setattr", "pivot_root", "chroot", "unshare", "setns", "fsopen", "fsconfig", "fsmount",
    "fspick", "move_mount", "open_tree", "open_tree_attr", "statmount", "listmount", "listns",
    "name_to_handle_at", "open_by_handle_at", "keyctl", "add_key", "request_key", "init_module",
    "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm",
    "vhangup", "uselib", "nfsservctl", "lookup_dcookie", "migrate_pages", "move_pages",
    "lsm_set_self_attr",
)  # fmt: skip
"""Calls that reach other processes, the kernel or the machine."""
_UNSUPPORTED = (
    "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr",
    "fremovexattr", "removexattrat", "file_setattr",
)  # fmt: skip
"""Attributes of files, which Landlock does not cover and no limit counts. Answered as by a file
system without them: `cp -p` and `install` go on."""
_UNSEEN = (
    "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl", "semget", "msgget", "mq_open",
)  # fmt: skip
"""Memory that no limit counts or that outlives its processes."""
_UNKNOWN = (
    "io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "openat2", "inotify_init",
    "inotify_init1", "inotify_add_watch", "fanotify_init", "fanotify_mark",
)  # fmt: skip
"""Answered as by an older kernel: no filter sees their effects, and libraries fall back to older
calls. inotify shows what happens in folders that cannot be read."""
FILE_CHANGES = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "utime",
    "utimes", "futimesat", "utimensat",
)  # fmt: skip
"""Modes, owners and times of files, which Landlock does not cover."""
PROCESS_CHANGES = (
    "prlimit64", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr",
)  # fmt: skip
"""Limits and scheduling of the process whose number is the first argument; 0 is the caller."""
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
"""Landlock keeps them inside from Linux 6.12 on. The first argument is a process or thread."""
_SIGNALS_BY_DESCRIPTOR = ("pidfd_open", "pidfd_send_signal")
_INT = 0xFFFFFFFF
"""The kernel looks at these bits of an int."""
_FORBIDDEN_IOCTLS = {
    0x40086602: "FS_IOC_SETFLAGS",
    0x40046602: "FS_IOC32_SETFLAGS",
    0x401C5820: "FS_IOC_FSSETXATTR",
    0x40087602: "FS_IOC_SETVERSION",
    0x8901: "FIOSETOWN",
    0x8902: "SIOCSPGRP",
    0x5412: "TIOCSTI",
    0x541C: "TIOCLINUX",
}
"""Attributes of a file that is open for reading only; signals to, and input of, other processes."""
_FORBIDDEN_FCNTLS = {8: "F_SETOWN", 15: "F_SETOWN_EX", 1024: "F_SETLEASE", 1026: "F_NOTIFY"}
"""A lease makes whoever writes a file wait, and F_NOTIFY is an older inotify."""


def folder_filter(*, has_private_mounts: bool, has_signal_scope: bool, has_listener: bool) -> Any:
    """A seccomp filter.

    has_private_mounts: modes, owners and times can be changed in the private folder alone.
    has_signal_scope: Landlock keeps signals inside. has_listener: a listener answers calls;
    else they are refused.
    """
    from seccompy import Action, Filter, FilterFlag

    flags = FilterFlag.NEW_LISTENER if has_listener else FilterFlag.NONE
    calls = Filter(default=int(Action.ERRNO) | errno.ENOSYS, flags=flags)
    ask = calls.notify if has_listener else partial(calls.errno, error=errno.EPERM)
    _refuse(calls, (*_FORBIDDEN, *_UNSEEN), errno.EPERM)
    _refuse(calls, _UNSUPPORTED, errno.EOPNOTSUPP)
    _refuse(calls, _UNKNOWN, errno.ENOSYS)
    _keep_sockets_inside(calls)
    _keep_to_itself(calls, ask)
    if not has_private_mounts:
        for name in FILE_CHANGES:
            with contextlib.suppress(ValueError):
                ask(name)
    if not has_signal_scope:
        _refuse(calls, _SIGNALS_BY_DESCRIPTOR, errno.ENOSYS)
        for name in SIGNALS:
            ask(name)
    for number in _known_calls():
        calls.allow(number)  # after the rules above: the first one that fits counts
    calls.program  # noqa: B018  # compiled here, once
    return calls


def as_int(argument: int) -> int:
    """An argument as the kernel reads an int."""
    number = argument & _INT
    return number - (_INT + 1) if number > _INT >> 1 else number


def _known_calls() -> list[int]:
    """Numbers of all calls of this architecture."""
    from seccompy import syscall_name

    numbers = []
    # Calls with higher numbers are of kernels after Linux 6.19
    for number in range(472):
        with contextlib.suppress(ValueError):
            syscall_name(number)
            numbers.append(number)
    return numbers


def _refuse(calls: Any, names: Iterable[str], error: int) -> None:
    for name in names:
        with contextlib.suppress(ValueError):  # some calls exist on one architecture only
            calls.errno(name, error)


def _keep_sockets_inside(calls: Any) -> None:
    from seccompy import ArgCmp, CmpOp

    # No socket at all: Landlock does not know of UDP, and a socket of the machine may lead
    # anywhere.
    calls.errno("socket", errno.EACCES)
    calls.errno("socketpair", errno.EACCES, args=[ArgCmp(0, CmpOp.NE, int(socket.AF_UNIX))])
    # One end of a pair of datagram sockets can send to any other socket that has a path. The mask
    # leaves out the flags of a socket's type.
    datagram = ArgCmp(1, CmpOp.MASKED_EQ, int(socket.SOCK_DGRAM), 0xF)
    calls.errno("socketpair", errno.EACCES, args=[datagram])


def _keep_to_itself(calls: Any, ask: Callable[[str], None]) -> None:
    """Calls that take a process, or many, act on the caller. Others are asked about, or refused."""
    from seccompy import ArgCmp, CmpOp

    for name in PROCESS_CHANGES:
        calls.allow(name, args=[ArgCmp(0, CmpOp.MASKED_EQ, 0, _INT)])
        ask(name)
    # The numbers by which each says that it means a process: PRIO_PROCESS and IOPRIO_WHO_PROCESS.
    for name, which in (("setpriority", 0), ("ioprio_set", 1)):
        itself = [ArgCmp(0, CmpOp.MASKED_EQ, which, _INT), ArgCmp(1, CmpOp.MASKED_EQ, 0, _INT)]
        calls.allow(name, args=itself)
        calls.errno(name, errno.EPERM)
    for request in _FORBIDDEN_IOCTLS:
        calls.errno("ioctl", errno.EPERM, args=[ArgCmp(1, CmpOp.MASKED_EQ, request, _INT)])
    for command in _FORBIDDEN_FCNTLS:
        calls.errno("fcntl", errno.EPERM, args=[ArgCmp(1, CmpOp.MASKED_EQ, command, _INT)])
    # CLONE_NEW* flags of clone: in a namespace of its own a process would have more rights
    for flag in (1 << bit for bit in range(32) if 0x7E020000 & 1 << bit):
        calls.errno("clone", errno.EPERM, args=[ArgCmp(0, CmpOp.MASKED_EQ, flag, flag)])
