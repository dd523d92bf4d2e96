"""Calls `on_removed` for each removed generator on its own thread, because the callback may block."""

import threading
from collections.abc import Callable
from queue import SimpleQueue

from rollcast.telemetry.logging import get_logger

log = get_logger()


class Removals:
    """A queue of removals and the thread that reports them, in order."""

    def __init__(self, on_removed: Callable[[str, str], None]) -> None:
        """`on_removed(generator, reason)`: called once for each removal; it may wait for Redis."""
        self._on_removed = on_removed
        self._queue: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._report, name="weight-removals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, generator: str, reason: str) -> None:
        """Never waits."""
        self._queue.put((generator, reason))

    def stop(self, deadline_seconds: float) -> None:
        """Report the remaining removals, at most for `deadline_seconds`."""
        self._queue.put(None)
        self._thread.join(deadline_seconds)

    def _report(self) -> None:
        while (removed := self._queue.get()) is not None:
            try:
                self._on_removed(*removed)
            except Exception:
                log.exception("on_removed failed; the sweep of idle claims will find its tasks", generator=removed[0])
