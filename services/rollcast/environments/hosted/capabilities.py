"""The capabilities that a contained process of root keeps: those that work on the files of its private folder.

Others reach the machine: they would undo the private file tree, raise limits, or act on other processes.
"""

import ctypes
import os

_CHOWN = 0
_DAC_OVERRIDE = 1
_DAC_READ_SEARCH = 2
_FOWNER = 3
_FSETID = 4
FILES = frozenset((_CHOWN, _DAC_OVERRIDE, _DAC_READ_SEARCH, _FOWNER, _FSETID))
_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT = 47
_CLEAR_ALL = 4


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Word(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def keep_only_file_capabilities() -> None:
    """Give up all other capabilities, for programs that are started later too. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    header = _Header(_VERSION_3, 0)
    words = (_Word * 2)()
    _check(libc.capget(ctypes.byref(header), words))
    if not any(word.permitted for word in words):
        return
    # Before `capset`, because this needs CAP_SETPCAP, which is given up there.
    bits_per_word = 32
    for number in range(bits_per_word * len(words)):  # EINVAL: no such capability; EPERM: programs gain nothing anyway
        if number not in FILES:
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    file_capability_bits = sum(1 << number for number in FILES) if os.getuid() == 0 else 0
    for index, word in enumerate(words):
        mask = file_capability_bits >> (bits_per_word * index) & 0xFFFFFFFF
        word.effective &= mask
        word.permitted &= mask
        word.inheritable = 0
    _check(libc.capset(ctypes.byref(header), words))


def _check(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
