"""How long a judge waits for its program: a limit of processor time, with wall time as a backstop.

computes longer than the limit                          too slow: wrong
backstop over, and slept or blocked beyond the limit    too slow: wrong
backstop over, and only waited for a core               no verdict: the machine was busy, the program may be right
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from rollcast.config.bounds import backstop_seconds


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Three clocks at one moment."""

    wall: float
    cpu: float
    waited: float

    def since(self, start: ClockReading) -> ClockReading:
        return ClockReading(self.wall - start.wall, self.cpu - start.cpu, self.waited - start.waited)

    def own_seconds(self) -> float:
        """Wall time without the wait for a core: computing, sleeping, blocked."""
        return self.wall - self.waited


class Patience:
    """One limit, from now on."""

    def __init__(self, seconds: float, read: Callable[[], ClockReading], start: ClockReading | None = None) -> None:
        """`seconds`: of processor time. `start`: None = now."""
        self._seconds = seconds
        self._read = read
        self._start = start or read()

    def left(self) -> float:
        """How soon the limit may be reached at the earliest, in seconds; 0 = it is."""
        used = self._read().since(self._start)
        return max(0.0, min(self._seconds - used.cpu, backstop_seconds(self._seconds) - used.wall))

    def only_waited(self, end: ClockReading) -> bool:
        """Whether one that was ended at `end` had computed, slept or been blocked for less than its limit."""
        used = end.since(self._start)
        return used.cpu < self._seconds and used.own_seconds() <= self._seconds


class Patiences:
    """Several limits together: the first that is reached counts."""

    def __init__(self, *limits: Patience) -> None:
        self._limits = limits

    def milliseconds(self) -> int:
        """Longest poll until the clocks are read again. Raises TimeoutError if a limit is reached."""
        left = min(limit.left() for limit in self._limits)
        if left <= 0.0:
            raise TimeoutError("the program does not answer")
        return math.ceil(left * 1000)

    def only_waited(self, end: ClockReading) -> bool:
        """Whether no limit was reached but for want of a core."""
        return all(limit.only_waited(end) for limit in self._limits)
