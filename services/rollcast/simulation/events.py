"""Simulated time: events in order of time, ties in order of creation."""

import heapq
from collections.abc import Callable


class Events:
    """A clock that jumps from event to event."""

    def __init__(self) -> None:
        self.now_seconds = 0.0
        """Seconds since the start."""
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._created = 0

    def schedule_at(self, time: float, action: Callable[[], object]) -> None:
        """Call `action` at `time` (now, if that has passed)."""
        self._created += 1
        heapq.heappush(self._heap, (max(time, self.now_seconds), self._created, action))

    def schedule_after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` in `seconds`."""
        self.schedule_at(self.now_seconds + seconds, action)

    @property
    def next_time(self) -> float | None:
        """Time of the next event; None without one."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """Advance to the next event and run it."""
        self.now_seconds, _, action = heapq.heappop(self._heap)
        action()
