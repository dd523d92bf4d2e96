"""Which of the kernel's protections are there, and the sentence for a user who has not got them
all.
"""

import ctypes
import functools
import importlib.util
import os
import sys

from rollcast.config.errors import UserError

_NEWER_GVISOR = "gvisor"
_FIRST_LINE_OF_GVISOR = b"Starting gVisor"


@functools.cache
def has_landlock() -> bool:
    return _is_installed("landlockpy") and bool(importlib.import_module("landlockpy").supported())


@functools.cache
def has_seccomp() -> bool:
    return _is_installed("seccompy") and bool(importlib.import_module("seccompy").supported())


def _is_installed(package: str) -> bool:
    return sys.platform == "linux" and importlib.util.find_spec(package) is not None


@functools.cache
def in_gvisor() -> bool:
    """Whether this kernel is gVisor's: newer releases say so in their version, every one in the
    kernel's log.
    """
    if sys.platform != "linux":
        return False
    log = ctypes.create_string_buffer(4096)
    read_kernel_log = 3
    length = ctypes.CDLL(None).klogctl(read_kernel_log, log, len(log))
    return (
        _NEWER_GVISOR in os.uname().release.lower()
        or _FIRST_LINE_OF_GVISOR in log.raw[: max(0, length)]
    )


def missing(*, keeps_modes: bool = True) -> list[str]:
    """What this machine lacks, each with what a program could do for want of it.

    keeps_modes: modes and times of files outside a private folder cannot be changed, or do not
    matter.
    """
    lacks = []
    if not has_landlock():
        lacks.append(
            "Landlock (a program could read every file that the grader can)"
            + _package_hint("landlockpy")
        )
    if not has_seccomp():
        lacks.append(
            "seccomp (a program could use the network and start processes)"
            + _package_hint("seccompy")
        )
    if not keeps_modes:
        lacks.append(
            "mount namespaces and seccomp notifications (a program could change modes of your "
            "files)"
        )
    return lacks


def _package_hint(package: str) -> str:
    return "" if _is_installed(package) else f"; package {package} is not installed"


def require_protections() -> None:
    """Raises UserError where programs of a model cannot be contained."""
    if lacks := missing():
        raise UserError(
            f"tasks.grading.sandbox = 'strict': this machine lacks {' and '.join(lacks)}; grade "
            "code on Linux 5.13 or newer with Landlock enabled, or set gvisor if the pod runs "
            "under gVisor, or sandbox: unsafe if another barrier surrounds it"
        )


def require_gvisor() -> None:
    """Raises UserError if the kernel is not gVisor's or lets no filter be set; its files are the
    pod's own alone.
    """
    if not in_gvisor():
        raise UserError(
            "sandbox = 'gvisor': the kernel here is not gVisor's; give the pod a RuntimeClass of "
            "gVisor, or set strict"
        )
    if not has_seccomp():
        raise UserError(
            f"sandbox = 'gvisor': seccomp is missing{_package_hint('seccompy')}; use a release of "
            "gVisor that has it"
        )
