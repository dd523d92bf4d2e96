"""The guard of an environment that may start processes (`processes.tree`): they all end with it.

the end of the environment     kills all of them, removes the private folder
too many of them, too much     the same, and says so on the connection
  memory or too much written
answers system calls that their filter asks about (`supervision`)
"""

import contextlib
import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rollcast.environments.python_processes.disk_use import DiskLimits, excess
from rollcast.environments.python_processes.private_folder import PrivateFolder
from rollcast.environments.python_processes.supervision import CallSupervisor
from rollcast.processes.frames import pack_message
from rollcast.processes.tree import guard, reap_child

MAX_PROCESSES = 64
"""One environment may have this many at the same time: a shell with a build of some jobs has a
dozen."""


def guard_environment(
    run: Callable[[], None],
    connection: socket.socket,
    private: PrivateFolder | None,
    parent: int,
    environment_end: socket.socket | None,
) -> None:
    """Fork `run`, and return when no process of it is left.

    connection: is given the reason if it was too much. private: the folder, whose size is bounded,
    and which is removed. None = the profile is trusted. parent: the process that it must not
    outlive. environment_end: brings the listener of the environment's filter. None = no filter
    asks.
    """

    def watch(environment: int) -> int:
        if excess_reason := _Watch(environment, private, environment_end).wait():
            message = {"ended": f"its processes were ended: {excess_reason}"}
            with contextlib.suppress(OSError):
                connection.sendall(pack_message(message))
        return 0

    guard(run, parent, watch, private.remove if private is not None else lambda: None)


class _Watch:
    """Waits for the end of an environment, and looks at its processes meanwhile."""

    def __init__(
        self, environment: int, private: PrivateFolder | None, environment_end: socket.socket | None
    ) -> None:
        self._environment = environment
        self._private = private
        self._end = environment_end
        self._supervisor: CallSupervisor | None = None
        self._looks = 0
        self._next_disk_use = 0.0
        """Monotonic seconds."""

    def wait(self) -> str:
        """The exceeded limit, in words; empty = the environment has ended."""
        while True:
            while (ended_child := reap_child()) is not None:
                # Orphans that the guard has adopted end here too.
                if ended_child == self._environment:
                    return ""
            self._looks += 1
            if self._private is not None and (excess_reason := self._too_much(self._private)):
                return excess_reason
            # Between two looks at the processes
            self._answer_calls(0.1)

    def _too_much(self, private: PrivateFolder) -> str:
        processes = list(_descendants())
        if len(processes) > MAX_PROCESSES:
            return f"it had {len(processes)} processes, and {MAX_PROCESSES} are allowed"
        resident = sum(map(_resident_bytes, processes))
        # All processes of one environment together may use this much.
        max_resident_bytes = 2 << 30
        if resident > max_resident_bytes:
            return (
                f"its processes took {resident >> 20} MiB, and {max_resident_bytes >> 20} are "
                "allowed"
            )
        began_at = time.monotonic()
        # The disk's use is asked for less often, because that reads the whole folder
        if self._looks % 10 or began_at < self._next_disk_use:
            return ""
        excess_reason = excess(
            private.path, processes, DiskLimits(), lambda: self._answer_calls(0.0)
        )
        end_seconds = time.monotonic()
        # Reading takes about a tenth of the time at most: a folder of many files is read less
        # often.
        self._next_disk_use = end_seconds + (end_seconds - began_at) / 0.1
        return excess_reason

    def _answer_calls(self, seconds: float) -> None:
        """Answer what the environment's processes ask, for this time; 0 = what waits."""
        deadline = time.monotonic() + seconds
        while True:
            source = self._supervisor or self._end
            if source is None:
                time.sleep(seconds)
                return
            waits = select.select([source], [], [], max(deadline - time.monotonic(), 0.0))[0]
            if not waits:
                return
            if self._supervisor is None:
                self._receive_listener()
            elif not self._supervisor.answer_waiting():
                self._supervisor = None  # no process with the filter is left
            if time.monotonic() >= deadline:
                return

    def _receive_listener(self) -> None:
        assert self._end is not None
        assert self._private is not None
        _, descriptors, _, _ = socket.recv_fds(self._end, 16, 1)
        if descriptors:
            self._supervisor = CallSupervisor(descriptors[0], self._private.home, self._environment)
        self._end.close()
        self._end = None


def _descendants() -> Iterator[int]:
    """Reads this tree alone, ten times a second. `tree.descendants` reads every process of the
    machine, and a hundred guards would take whole cores. It needs no option of the kernel, though,
    and so it is the one that kills.
    """
    parents = [os.getpid()]
    while parents:
        tasks = Path(f"/proc/{parents.pop()}/task")
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for thread in os.listdir(tasks):
                children = [int(pid) for pid in (tasks / thread / "children").read_text().split()]
                parents += children
                yield from children


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0
