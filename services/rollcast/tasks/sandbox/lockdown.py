"""What a process gives up, for good, before it sees anything that others wrote.

    descriptors -> Landlock -> limits -> seccomp    each part narrows what those after it could do

Made once in the fork server, so that putting it on costs a child a few system calls.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.processes.descriptors import keep_only
from rollcast.processes.linux import Prctl, prctl
from rollcast.processes.tree import die_with_parent
from rollcast.tasks.sandbox.limits import Limits, limit_this_process
from rollcast.tasks.sandbox.protections import has_landlock, has_seccomp


@dataclass(frozen=True, slots=True)
class Lockdown:
    """The lockdown of one kind of child. `ruleset` and `system_calls` are None if the kernel lacks
    them and the settings allow that."""

    base_bytes: int
    """Address space of the fork server."""
    ruleset: Any
    system_calls: Any

    def put_on(self, limits: Limits, *descriptors: int) -> None:
        """Keep standard streams and `descriptors`, which become 3, 4, …; give up the rest."""
        die_with_parent()
        if self.ruleset is not None:
            self.ruleset.restrict()
        keep_only(descriptors)
        limit_this_process(limits, self.base_bytes)
        if self.system_calls is not None:
            self.system_calls.load()


def hide_memory() -> None:
    """No process of the same user may look into this one or its children."""
    prctl(Prctl.SET_DUMPABLE, 0)


def show_descriptors() -> None:
    """Undo `hide_memory` in a process without secrets, so that another of the same user can see its
    open files.
    """
    prctl(Prctl.SET_DUMPABLE, 1)


def has_signal_scope() -> bool:
    """Whether this kernel's Landlock keeps signals inside (Linux 6.12)."""
    from landlockpy import Scope, abi_version, scope_for_abi

    return Scope.SIGNAL in scope_for_abi(abi_version())


def make_lockdowns(readable: list[Path], base_bytes: int) -> tuple[Lockdown, Lockdown]:
    """The lockdown of judges and that of programs, with the protections that this kernel has
    (`protections.missing` names what it lacks)."""
    ruleset = judge = program = None
    if has_landlock():
        ruleset = scoped_ruleset()
        allow_reading(ruleset, readable)
    if has_seccomp():
        from rollcast.tasks.sandbox.system_calls import judge_filter, program_filter

        judge = judge_filter()
        program = program_filter()
        for system_calls in (judge, program):
            system_calls.program  # noqa: B018  # compiled here, once
    return Lockdown(base_bytes, ruleset, judge), Lockdown(base_bytes, ruleset, program)


def scoped_ruleset() -> Any:
    """A Landlock ruleset under which nothing can be opened; no TCP, no signals to outside.

    Rights that this kernel's Landlock does not know are left out; the system-call filter covers
    each of them as well.
    """
    from landlockpy import Ruleset, Scope

    return Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL)


def allow_reading(ruleset: Any, paths: Iterable[Path], *, can_execute: bool = False) -> None:
    """Let these files, and those of these folders, be opened for reading.

    Raises OSError: one of them is not there, unless it is a place of programs, which machines lack.
    """
    from landlockpy import AccessFS

    rights = AccessFS.EXECUTE if can_execute else AccessFS.NONE
    for path in paths:
        if path.is_dir():
            ruleset.allow_path(path, AccessFS.READ_FILE | AccessFS.READ_DIR | rights)
        elif path.exists() or not can_execute:
            ruleset.allow_path(path, AccessFS.READ_FILE | rights)
