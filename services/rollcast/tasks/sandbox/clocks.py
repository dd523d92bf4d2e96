"""How long a process has computed, how long it waited for a core, and the limits that a judge sets
its program by both.

The first is a clock of the kernel's that any process may read. The second is `/proc/PID/schedstat`,
which a locked-down process cannot open: the fork server opens it and hands the open file on. gVisor
and kernels without scheduler statistics have no such file; a process there never seems to wait
(under gVisor waiting counts as computing).

A limit is one of processor time, with wall time as a backstop:

computes longer than the limit                          too slow: wrong
backstop over, and slept or blocked beyond the limit    too slow: wrong
backstop over, and only waited for a core               no verdict: the machine was busy,
                                                        the program may be right
"""

import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import NamedTuple

from rollcast.config.bounds import LEAST_WAIT_SECONDS, backstop_seconds


def cpu_seconds(pid: int) -> float:
    """Processor time of a process that lives or was not waited for yet.

    Raises OSError if there is no such process.
    """
    # CPUCLOCK_SCHED: of all threads, in nanoseconds (linux/posix-timers.h)
    return time.clock_gettime((~pid << 3) | 2)


def open_waits(pid: int) -> int:
    """A descriptor for `waited_seconds`."""
    with contextlib.suppress(OSError):
        return os.open(f"/proc/{pid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


def waited_seconds(descriptor: int) -> float:
    """How long that process has waited for a core, up to the last time it got one.

    0 if the kernel does not say.
    """
    try:
        # Three numbers of 64 bits and blanks
        words = os.pread(descriptor, 96, 0).split()
    except OSError:  # it was waited for
        return 0.0
    return int(words[1]) / 1e9 if len(words) > 1 else 0.0


class ClockReading(NamedTuple):
    """Three clocks at one moment, in seconds."""

    wall: float
    cpu: float
    waited: float


class TimeLimit(NamedTuple):
    seconds: float
    """Seconds of processor time from `start` on."""
    start: ClockReading
    least_wait_seconds: float = LEAST_WAIT_SECONDS
    """Wall time beyond the limit at least."""

    def remaining_seconds(self, current_reading: ClockReading) -> float:
        """How soon the limit may be reached at the earliest, in seconds."""
        cpu_left = self.seconds - (current_reading.cpu - self.start.cpu)
        wall_left = backstop_seconds(self.seconds, self.least_wait_seconds) - (
            current_reading.wall - self.start.wall
        )
        return min(cpu_left, wall_left)

    def only_waited(self, end: ClockReading) -> bool:
        """Whether a program that was ended at `end` had computed, slept or been blocked for less
        than its limit.
        """
        own_seconds = (end.wall - self.start.wall) - (end.waited - self.start.waited)
        return end.cpu - self.start.cpu < self.seconds and own_seconds <= self.seconds


class Patience:
    """Several limits together: the first that is reached counts."""

    def __init__(self, read_clocks: Callable[[], ClockReading], *limits: TimeLimit) -> None:
        self._read_clocks = read_clocks
        self._limits = limits

    def milliseconds(self) -> int:
        """Longest poll until the clocks are read again.

        Raises TimeoutError if a limit is reached.
        """
        current_reading = self._read_clocks()
        seconds_left = min(limit.remaining_seconds(current_reading) for limit in self._limits)
        if seconds_left <= 0.0:
            raise TimeoutError("the program does not answer")
        return math.ceil(seconds_left * 1000)

    def only_waited(self) -> bool:
        """Whether no limit was reached except for want of a core. The program must have ended: the
        kernel reports a wait for a core only once it is over."""
        end = self._read_clocks()
        return all(limit.only_waited(end) for limit in self._limits)
