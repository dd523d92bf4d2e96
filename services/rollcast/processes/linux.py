"""Calls and numbers of Linux that Python 3.11 has no names for; the numbers are the same on every
architecture.
"""

import ctypes
import os
from enum import IntEnum, IntFlag

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class Prctl(IntEnum):
    """Options of prctl(2)."""

    SET_DUMPABLE = 4
    SET_SECCOMP = 22
    CAPBSET_DROP = 24
    CAP_AMBIENT = 47


class Capability(IntEnum):
    """capabilities(7) that work on files."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    DAC_READ_SEARCH = 2
    FOWNER = 3
    FSETID = 4


class Namespace(IntFlag):
    """Flags of unshare(2)."""

    MOUNTS = 0x20000
    USERS = 0x10000000


class Mount(IntFlag):
    """Flags of mount(2)."""

    BIND = 0x1000
    RECURSIVE = 0x4000
    PRIVATE = 0x40000


class At(IntFlag):
    """Flags of system calls that take a folder and a path."""

    SYMLINK_NOFOLLOW = 0x100
    RECURSIVE = 0x8000


class Resolve(IntFlag):
    """Flags of openat2(2)."""

    NO_MAGICLINKS = 0x02
    BENEATH = 0x08


CURRENT_FOLDER = -100
"""AT_FDCWD: the descriptor that means the working folder."""


def prctl(option: Prctl, first: int, second: int = 0) -> int:
    """0 = the kernel has done it."""
    return int(LIBC.prctl(option, first, second, 0, 0))


def check(result: int) -> int:
    """The result of a call of LIBC. Raises OSError if the call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
