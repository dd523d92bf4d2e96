"""What a process gives up, for good, before it sees anything that others wrote.

    descriptors -> Landlock -> limits -> seccomp       each part narrows what the parts after it could still do

Made once in the fork server, so that putting it on costs a child a few system calls.
"""

import ctypes
import fcntl
import os
from pathlib import Path
from typing import Any

from rollcast.tasks.sandbox.limits import Limits, limit_this_process

MAX_SERVER_FILES = 4096
"""Descriptors that a fork server may have open: a child closes as many."""
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_SIGKILL = 9


class Lockdown:
    """The lockdown of one kind of child. `filter` and `ruleset` are None if the kernel lacks them and the settings
    allow that."""

    def __init__(self, base_bytes: int, ruleset: Any, system_calls: Any) -> None:
        self._base_bytes = base_bytes
        self._ruleset = ruleset
        self._system_calls = system_calls
        if system_calls is not None:
            system_calls.program  # noqa: B018  # compiled here, once

    def put_on(self, limits: Limits, *descriptors: int) -> None:
        """Keep standard streams and `descriptors`, which become 3, 4, …; give up the rest."""
        die_with_parent()
        if self._ruleset is not None:
            self._ruleset.restrict()
        _keep_only(descriptors)
        limit_this_process(limits, self._base_bytes)
        if self._system_calls is not None:
            self._system_calls.load()


_libc = ctypes.CDLL(None)
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


def die_with_parent() -> None:
    """All that a process promises whose verifier is trusted."""
    _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def hide_memory() -> None:
    """No process of the same user may look into this one or its children."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _keep_only(descriptors: tuple[int, ...]) -> None:
    end = 3 + len(descriptors)
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, end) for descriptor in descriptors]
    for target, copy in enumerate(copies, start=3):
        os.dup2(copy, target)
    os.closerange(end, MAX_SERVER_FILES)


def make_lockdowns(readable: list[Path], base_bytes: int) -> tuple[Lockdown, Lockdown]:
    """The lockdown of judges and that of programs, with the protections that this kernel has (`protections.missing`
    names what it lacks)."""
    from rollcast.tasks.sandbox.protections import has_landlock, has_seccomp

    ruleset = judge = program = None
    if has_landlock():
        from rollcast.tasks.sandbox.files import read_only

        ruleset = read_only(readable)
    if has_seccomp():
        from rollcast.tasks.sandbox.system_calls import judge_filter, program_filter

        judge = judge_filter()
        program = program_filter()
    return Lockdown(base_bytes, ruleset, judge), Lockdown(base_bytes, ruleset, program)
