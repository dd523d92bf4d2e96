"""Tells whom it concerns which generators were removed, from a thread of its own: hearing it may take a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from rollcast.telemetry.logging import get_logger

log = get_logger()


class Removals:
    """Removals that are still to be told, in order."""

    def __init__(self, on_removed: Callable[[str, str], None]) -> None:
        """`on_removed(generator, reason)`: called once for each; it may wait for Redis."""
        self._on_removed = on_removed
        self._untold: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._tell, name="weight-removals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, generator: str, reason: str) -> None:
        """Never waits."""
        self._untold.put((generator, reason))

    def stop(self, deadline_seconds: float) -> None:
        """Tell what is left, for so long at most."""
        self._untold.put(None)
        self._thread.join(deadline_seconds)

    def _tell(self) -> None:
        while (removed := self._untold.get()) is not None:
            try:
                self._on_removed(*removed)
            except Exception:
                log.exception("on_removed failed; the sweep of idle claims will find its tasks", generator=removed[0])
