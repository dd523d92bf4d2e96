"""What an environment's process gives up, for good, before it makes the instance: one of three profiles.

    compute   computes, and reads Python's own files and its module's; no other file, no process, no network
    folder    in addition writes a private folder and starts programs of the system; no network
    trusted   gives up nothing

docs/sandbox.md has them as a table, with what keeps each promise.
"""

import contextlib
import errno
import resource
import socket
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.config.environments.settings import Profile
from rollcast.tasks.sandbox.lockdown import FIRST_KEPT_DESCRIPTOR, keep_only, make_lockdowns
from rollcast.tasks.sandbox.protections import missing

MEMORY_BYTES = 1 << 30
"""Address space of each process of a contained environment beyond its module's: as much as a grading has."""
FILE_BYTES = 256 << 20
"""Largest file that an environment of the profile folder may write."""
CPU_SECONDS = 86_400
"""Processor time of one contained process: a day. Deadlines of calls end an endless computation long before."""
_PROGRAMS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/lib", "/lib64", "/usr/lib", "/usr/lib64")
_CONFIGURED = ("/etc/ld.so.cache", "/etc/alternatives", "/usr/share")
"""What programs of the system read; nothing of a user's."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
_FORBIDDEN = (
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "bpf", "perf_event_open", "userfaultfd",
    "mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "fsopen", "fsmount", "move_mount", "open_tree",
    "open_by_handle_at", "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module",
    "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "syslog", "settimeofday",
    "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm",
)  # fmt: skip
"""System calls that reach other processes, the kernel or the machine."""
_UNSEEN = (
    "chown", "fchown", "lchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr",
    "lremovexattr", "fremovexattr", "removexattrat", "memfd_create", "memfd_secret", "shmget", "shmat", "shmctl",
    "semget", "msgget", "mq_open",
)  # fmt: skip
"""Owners and attributes of files, which Landlock does not cover; memory that no limit counts or that outlives its
processes."""
_SOCKET_TYPES = 0xF
"""The bits of a socket's type without its flags."""
_UNKNOWN = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3", "openat2")
"""Answered as by an older kernel: no filter sees their effects, and libraries fall back to older calls."""
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEW* flags of clone: in a namespace of its own a process would have more rights."""


@dataclass(frozen=True, slots=True)
class Containment:
    """What the children of one nursery put on. Made once, so that it costs a child a few system calls."""

    profile: Profile
    base_bytes: int = 0
    """Address space of the nursery."""
    compute: Any = None
    """The lockdown of `tasks.sandbox`. None = another profile."""
    readable: tuple[Path, ...] = ()
    system_calls: Any = None

    def put_on(self, connection: int, folder: Path | None) -> int:
        """Give up rights; returns the connection's new number. `folder`: the private one of the profile folder."""
        if self.profile == "trusted":
            return connection
        if folder is None:
            self.compute.ruleset.restrict()
        else:
            # Closed before its descriptor's number is another file's.
            with _ruleset(self.readable, folder) as ruleset:
                ruleset.restrict()
        keep_only((connection,))
        _limit_contained(self.base_bytes, is_computing=folder is None)
        system_calls = self.compute.system_calls if folder is None else self.system_calls
        system_calls.load()
        return FIRST_KEPT_DESCRIPTOR


def containment(profile: Profile, readable: list[Path], base_bytes: int) -> Containment:
    """Raises OSError in words if this machine cannot contain the profile."""
    if profile == "trusted":
        return Containment(profile)
    if lacks := missing():
        raise OSError(f"this machine lacks {' and '.join(lacks)}; set profile: trusted if another barrier surrounds it")
    judges, _ = make_lockdowns(readable, base_bytes)
    if profile == "compute":
        return Containment(profile, base_bytes, compute=judges)
    return Containment(profile, base_bytes, readable=tuple(readable), system_calls=_folder_filter())


def _ruleset(readable: tuple[Path, ...], folder: Path) -> Any:
    """Reads and programs of the system, everything in the folder, and no network or signal to outside."""
    from landlockpy import AccessFS, Ruleset, Scope

    ruleset = Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL)
    reads = AccessFS.READ_FILE | AccessFS.READ_DIR
    interpreters = [Path(sys.prefix), Path(sys.base_prefix), Path(sysconfig.get_path("scripts"))]
    for path in [*readable, *interpreters, *map(Path, _PROGRAMS), *map(Path, _CONFIGURED)]:
        if path.is_dir():
            ruleset.allow_path(path, reads | AccessFS.EXECUTE)
        elif path.exists():
            ruleset.allow_path(path, AccessFS.READ_FILE | AccessFS.EXECUTE)
    for device in map(Path, _DEVICES):
        if device.exists():
            ruleset.allow_path(device, AccessFS.READ_FILE | AccessFS.WRITE_FILE)
    everything = reads | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REFER
    changes = AccessFS.REMOVE_DIR | AccessFS.REMOVE_FILE | AccessFS.MAKE_DIR | AccessFS.MAKE_REG
    links = AccessFS.MAKE_SYM | AccessFS.MAKE_FIFO | AccessFS.MAKE_SOCK
    ruleset.allow_path(folder, everything | changes | links)
    return ruleset


def _folder_filter() -> Any:
    from seccompy import ArgCmp, CmpOp, Filter

    allowed = Filter()
    for name in (*_FORBIDDEN, *_UNSEEN):
        with contextlib.suppress(KeyError, ValueError):  # some calls exist on one architecture only
            allowed.errno(name, errno.EPERM)
    for name in _UNKNOWN:
        with contextlib.suppress(KeyError, ValueError):
            allowed.errno(name, errno.ENOSYS)
    # No socket at all: Landlock does not know of UDP, and a socket of the machine may lead anywhere.
    allowed.errno("socket", errno.EACCES)
    allowed.errno("socketpair", errno.EACCES, args=[ArgCmp(0, CmpOp.NE, int(socket.AF_UNIX))])
    # One end of a pair of datagram sockets can send to any other socket that has a path.
    datagram = ArgCmp(1, CmpOp.MASKED_EQ, int(socket.SOCK_DGRAM), _SOCKET_TYPES)
    allowed.errno("socketpair", errno.EACCES, args=[datagram])
    for flag in (1 << bit for bit in range(32) if _NEW_NAMESPACES & 1 << bit):
        allowed.errno("clone", errno.EPERM, args=[ArgCmp(0, CmpOp.MASKED_EQ, flag, flag)])
    allowed.program  # noqa: B018  # compiled here, once
    return allowed


def _limit_contained(base_bytes: int, *, is_computing: bool) -> None:
    _limit(resource.RLIMIT_AS, base_bytes + MEMORY_BYTES)
    _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0 if is_computing else FILE_BYTES)
    if is_computing:
        _limit(resource.RLIMIT_NPROC, 0)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))
