"""What one grading may use, and the kernel's limits that hold each of its processes there."""

from __future__ import annotations

import contextlib
import math
import resource
from dataclasses import asdict, dataclass
from typing import Any

TRUSTED = "trusted"
"""How a fork server is told that its verifier may do anything."""
STACK_BYTES = 64 << 20
"""Deep recursion through C code (sorted with a key, lru_cache) needs more than the usual 8 MiB."""
MAX_OPEN_FILES = 64
VERDICT_SECONDS = 5.0
"""Beyond the deadline, for a judge to say that its program was too slow. One that does not hangs itself."""
WALL_SECONDS_PER_CPU_SECOND = 10.0
"""How long a judge whose CPU time is limited may take on a busy machine. One that did not get its CPU time until then
gives no verdict."""


@dataclass(frozen=True, slots=True)
class Limits:
    deadline_seconds: float
    """Of the whole grading, from the moment its judge is forked; a program that is at work then was too slow."""
    seconds_per_test: float
    """Wall time of one call, or of one run with one input."""
    memory_bytes: int
    """Address space of each process beyond what the fork server already has."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def limit_this_process(limits: Limits, base_bytes: int) -> None:
    """No file can be written, no process started, no core dumped; memory, processor time and descriptors are bounded.

    base_bytes: address space of the fork server.
    """
    _limit(resource.RLIMIT_AS, base_bytes + limits.memory_bytes)
    _limit(resource.RLIMIT_CPU, math.ceil(limits.deadline_seconds + VERDICT_SECONDS) + 1)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    for kind in (
        resource.RLIMIT_FSIZE,
        resource.RLIMIT_CORE,
        resource.RLIMIT_NPROC,
        resource.RLIMIT_MEMLOCK,
    ):
        _limit(kind, 0)
    with contextlib.suppress(ValueError):  # gVisor knows none; the system-call filter has no queues either
        _limit(resource.RLIMIT_MSGQUEUE, 0)
    _limit(resource.RLIMIT_STACK, STACK_BYTES)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def address_space_bytes() -> int:
    """Of this process, now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
