"""What one grading may use, the limits of the kernel that hold its processes there, and how a
program can fail.
"""

import contextlib
import math
import resource
from dataclasses import dataclass
from typing import Literal

from rollcast.config.bounds import LEAST_WAIT_SECONDS, backstop_seconds
from rollcast.processes.limits import limit

TRUSTED = "trusted"
"""Argument of a fork server whose verifier may do anything."""
VERDICT_SECONDS = 5.0
"""Time after the deadline for a judge to report that its program was too slow. A judge that does
not report hangs itself."""

Reason = Literal[
    "time", "memory", "output", "exit", "crash", "forbidden", "garbled", "reference", "busy"
]
"""What the sandbox stopped: too slow; out of memory; endless output; ended before it answered;
crashed; made a system call of another architecture; answered with something else than plain values;
had a reference that is too much for the parser. `busy` is the machine's doing, and no verdict: the
program only waited for a core."""

BUSY = (
    "its processes waited for a processor core until the time was over; give the grader more "
    "cores, or fewer gradings"
)


class ProgramError(Exception):
    """The program is wrong: whatever ended it, its own time limit included, is its own failure;
    `busy` excepted.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    deadline_seconds: float
    """Processor time of the whole grading; a program that is at work when it is used up was too
    slow. Wall time of one whose verifier is trusted: it may work in threads, in processes of its
    own, or wait for others."""
    seconds_per_test: float
    """Processor time of one call, or of one run with one input."""
    memory_bytes: int
    """Address space of each process beyond what the fork server already has."""
    least_wait_seconds: float = LEAST_WAIT_SECONDS
    """Wall time beyond either limit that a program has at least. Tests of programs that sleep wait
    for less."""

    @property
    def backstop_seconds(self) -> float:
        """The longest wall time of a grading."""
        return backstop_seconds(self.deadline_seconds, self.least_wait_seconds)


def limit_this_process(limits: Limits, base_bytes: int) -> None:
    """No file can be written, no process started, no core dumped; memory, processor time and
    descriptors are bounded.

    base_bytes: address space of the fork server.
    """
    limit(resource.RLIMIT_AS, base_bytes + limits.memory_bytes)
    limit(resource.RLIMIT_CPU, math.ceil(limits.deadline_seconds + VERDICT_SECONDS) + 1)
    # Open files of a program
    limit(resource.RLIMIT_NOFILE, 64)
    for kind in (
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_CORE,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_MEMLOCK,
    ):
        limit(kind, 0)
    # gVisor has no such limit; the system-call filter allows no queues either.
    with contextlib.suppress(ValueError):
        limit(resource.RLIMIT_MSGQUEUE, 0)
    # Deep recursion through C code (sorted with a key, lru_cache) needs more than the usual 8 MiB
    limit(resource.RLIMIT_STACK, 64 << 20)
