"""Rights that an environment's process gives up, for good, before it makes the instance: one of
three profiles.

    compute   computes, and reads Python's own files and its module's; no other file, no process, no
              network
    folder    in addition writes a private folder and starts programs of the system; no network
    trusted   gives up nothing

docs/sandbox.md has them as a table, with what keeps each promise.
"""

from __future__ import annotations

import os
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.environments.python_processes.capabilities import keep_only_file_capabilities
from rollcast.environments.python_processes.folder_access import (
    allow_folder,
    allow_interpreter,
    keep_signals_inside,
)
from rollcast.environments.python_processes.folder_calls import folder_filter
from rollcast.environments.python_processes.private_folder import PrivateFolder
from rollcast.environments.python_processes.private_mounts import (
    SHARED_MEMORY,
    are_allowed,
    enter_private_mounts,
    succeeds_in_fork,
)
from rollcast.processes.descriptors import FIRST_KEPT_DESCRIPTOR, keep_only
from rollcast.processes.limits import limit
from rollcast.processes.tree import die_with_parent
from rollcast.tasks.sandbox.lockdown import (
    Lockdown,
    has_signal_scope,
    make_lockdowns,
    show_descriptors,
)
from rollcast.tasks.sandbox.protections import missing

if TYPE_CHECKING:  # a tenth of a second less for each fork server
    from rollcast.config.environments.settings import Profile


@dataclass(frozen=True, slots=True)
class Containment:
    """Restrictions that the children of a fork server put on.

    Made once, so that it costs a child a few system calls.
    """

    profile: Profile
    base_bytes: int = 0
    """Address space of the fork server."""
    compute: Lockdown | None = None
    """The lockdown of `tasks.sandbox`. None = another profile."""
    readable: tuple[Path, ...] = ()
    system_calls: Any = None
    has_private_mounts: bool = False
    new_programs: Any = None
    """The Landlock ruleset of programs under `compute` that start a new Python. None = they do
    not."""

    def put_on(
        self,
        descriptors: tuple[int, ...],
        private: PrivateFolder | None,
        guard: socket.socket | None,
    ) -> tuple[int, ...]:
        """Give up rights; returns the new numbers of the descriptors, which alone are kept of a
        contained process.

        private, guard: of the profile folder. The guard is sent the listener of the system-call
        filter.
        """
        if self.profile == "trusted":
            return descriptors
        if self.profile == "compute":
            self._put_on_compute(descriptors)
        else:
            assert private is not None
            assert guard is not None
            self._put_on_folder(descriptors, private, guard)
        return tuple(range(FIRST_KEPT_DESCRIPTOR, FIRST_KEPT_DESCRIPTOR + len(descriptors)))

    def put_on_programs(self, descriptor: int) -> int:
        """Restrict the process of the model's programs.

        Under `folder` it has inherited the rest.
        """
        if self.profile == "compute":
            self._put_on_compute((descriptor,))
        else:
            if self.profile == "folder":
                keep_signals_inside()
            keep_only((descriptor,))
        return FIRST_KEPT_DESCRIPTOR

    def put_on_new_programs(self, descriptor: int) -> bytes:
        """Like `put_on_programs`, for a process that starts a new Python and then loads the
        returned filter.
        """
        if self.profile != "compute":
            self.put_on_programs(descriptor)
            return b""
        assert self.compute is not None
        self.new_programs.restrict()
        keep_only((descriptor,))
        _limit_contained(self.base_bytes, is_compute_profile=True)
        program: bytes = self.compute.system_calls.program
        return program

    def _put_on_compute(self, descriptors: tuple[int, ...]) -> None:
        assert self.compute is not None
        self.compute.ruleset.restrict()
        keep_only(descriptors)
        _limit_contained(self.base_bytes, is_compute_profile=True)
        self.compute.system_calls.load()

    def _put_on_folder(
        self, descriptors: tuple[int, ...], private: PrivateFolder, guard: socket.socket
    ) -> None:
        writable = [private.home]
        if self.has_private_mounts:
            enter_private_mounts(private)
            die_with_parent()  # a change of rights ends that
            writable.append(SHARED_MEMORY)
        os.chdir(private.home)
        # Closed before its descriptor's number is another file's.
        with allow_folder(self.readable, writable) as ruleset:
            ruleset.restrict()
        keep_only((*descriptors, guard.fileno()))
        _limit_contained(self.base_bytes, is_compute_profile=False)
        keep_only_file_capabilities()
        listener = self.system_calls.load()
        # its guard counts the files that it has open, and reads the paths that it asks about
        show_descriptors()
        with socket.socket(fileno=FIRST_KEPT_DESCRIPTOR + len(descriptors)) as guard_socket:
            if listener is not None:
                socket.send_fds(guard_socket, [b"listener"], [listener.fileno()])
                listener.close()


def containment(
    profile: Profile, readable: list[Path], base_bytes: int, *, starts_anew: bool = False
) -> Containment:
    """starts_anew: programs of the model need a Python of their own.

    Raises OSError in words if this machine cannot contain the profile.
    """
    if profile == "trusted":
        return Containment(profile)
    _check_protections()
    if profile == "compute":
        judges, _ = make_lockdowns(readable, base_bytes)
        new_programs = allow_interpreter(readable) if starts_anew else None
        return Containment(profile, base_bytes, compute=judges, new_programs=new_programs)
    has_private_mounts = are_allowed()
    has_listener = succeeds_in_fork(_load_asking_filter)
    _check_protections(keeps_modes=has_private_mounts or has_listener)
    calls = folder_filter(
        has_private_mounts=has_private_mounts,
        has_signal_scope=has_signal_scope(),
        has_listener=has_listener,
    )
    return Containment(
        profile,
        base_bytes,
        readable=tuple(readable),
        system_calls=calls,
        has_private_mounts=has_private_mounts,
    )


def _check_protections(*, keeps_modes: bool = True) -> None:
    if lacks := missing(keeps_modes=keeps_modes):
        raise OSError(
            f"this machine lacks {' and '.join(lacks)}; set profile: trusted if another barrier "
            "surrounds it"
        )


def _load_asking_filter() -> None:
    """Raises OSError if no filter can ask, or a filter of the container does already."""
    from seccompy import Filter, FilterFlag

    Filter(flags=FilterFlag.NEW_LISTENER).load()


def _limit_contained(base_bytes: int, *, is_compute_profile: bool) -> None:
    # Address space of each process of a contained environment beyond its module's: as much as a
    # grading has
    limit(resource.RLIMIT_AS, base_bytes + (1 << 30))
    # Processor time of one contained process: a day. Deadlines of calls end an endless computation
    # long before.
    limit(resource.RLIMIT_CPU, 86_400)
    limit(resource.RLIMIT_CORE, 0)
    # Largest file that an environment of the profile folder may write
    limit(resource.RLIMIT_FSIZE, 0 if is_compute_profile else (256 << 20))
    if is_compute_profile:
        limit(resource.RLIMIT_NPROC, 0)
