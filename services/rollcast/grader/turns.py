"""Who may grade now, who waits, who is sent away."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from rollcast.telemetry import grader_metrics
from rollcast.telemetry.exporter import Exporter


class NoTurn(Exception):  # noqa: N818  (a state that the caller waits out)
    """`reason`: full, stopping or abandoned."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Turns:
    """Lets `running` gradings run concurrently and `waiting` more wait. Thread-safe."""

    def __init__(self, *, running: int, waiting: int, exporter: Exporter) -> None:
        self._most_running = running
        self._most_waiting = waiting
        self._exporter = exporter
        self._running = self._waiting = 0
        self._closed = False
        self._changed = threading.Condition()
        self._show()

    @contextlib.contextmanager
    def turn(self, is_still_wanted: Callable[[], bool]) -> Iterator[None]:
        """Waits for a turn as long as it is `is_still_wanted`. Raises NoTurn."""
        with self._changed:
            self._wait(is_still_wanted)
            self._running += 1
            self._show()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._show()
                self._changed.notify()

    def close(self) -> None:
        """Refuse further turns, and those that wait for one."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, is_still_wanted: Callable[[], bool]) -> None:
        if self._running + self._waiting >= self._most_running + self._most_waiting:
            raise NoTurn("full")
        self._waiting += 1
        self._show()
        try:
            while not self._closed and self._running >= self._most_running and is_still_wanted():
                # How soon one that waits notices that its caller went away
                self._changed.wait(0.5)
        finally:
            self._waiting -= 1
            self._show()
        if self._closed:
            raise NoTurn("stopping")
        if not is_still_wanted():
            self._changed.notify()  # the turn that this one was woken for goes to the next
            raise NoTurn("abandoned")

    def _show(self) -> None:
        self._exporter.set(grader_metrics.GRADER_RUNNING, self._running)
        self._exporter.set(grader_metrics.GRADER_WAITING, self._waiting)
