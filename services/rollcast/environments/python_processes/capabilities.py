"""The capabilities that a contained process of root keeps: those that work on the files of its
private folder.

Others reach the machine: they would undo the private file tree, raise limits, or act on other
processes.
"""

import ctypes
import os

from rollcast.processes.linux import LIBC, Capability, Prctl, check, prctl

FILES = frozenset(Capability)


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Word(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def keep_only_file_capabilities() -> None:
    """Give up all other capabilities, for programs that are started later too. Raises OSError."""
    version_3 = 0x20080522
    header = _Header(version_3, 0)
    words = (_Word * 2)()
    check(LIBC.capget(ctypes.byref(header), words))
    if not any(word.permitted for word in words):
        return
    # Before `capset`, because this needs CAP_SETPCAP, which is given up there.
    bits_per_word = 32
    for number in range(
        bits_per_word * len(words)
    ):  # EINVAL: no such capability; EPERM: programs gain nothing anyway
        if number not in FILES:
            prctl(Prctl.CAPBSET_DROP, number)
    clear_all = 4
    prctl(Prctl.CAP_AMBIENT, clear_all)
    file_capability_bits = sum(1 << number for number in FILES) if os.getuid() == 0 else 0
    for index, word in enumerate(words):
        mask = file_capability_bits >> (bits_per_word * index) & 0xFFFFFFFF
        word.effective &= mask
        word.permitted &= mask
        word.inheritable = 0
    check(LIBC.capset(ctypes.byref(header), words))
