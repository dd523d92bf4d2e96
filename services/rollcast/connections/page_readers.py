"""The readers of a service's /metrics, so that the service can wait until they have read its last state."""

import threading

REGULAR_SECONDS = 120.0
"""A reader within this time is expected again: Prometheus reads at least every minute."""
ONE_LOOK = "rollcast, one look"
"""Part of the user agent of a client that reads once, and is not waited for."""
MAX_READERS = 256
"""Remembered readers; for one more, the one that read longest ago is forgotten."""


class PageReaders:
    """When each reader was last given the page. Thread-safe. Moments are monotonic seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at: dict[str, float] = {}

    def note(self, reader: str, rendered_at: float) -> None:
        """The page as it was at `rendered_at` has been sent to `reader`."""
        if ONE_LOOK in reader:
            return
        with self._lock:
            self._read_at[reader] = max(rendered_at, self._read_at.get(reader, rendered_at))
            while len(self._read_at) > MAX_READERS:
                del self._read_at[min(self._read_at, key=self._read_at.__getitem__)]

    def have_read_since(self, moment: float) -> bool:
        """Whether all that read the page regularly before `moment` have read it since, and at least one has."""
        with self._lock:
            regular = [read_at for read_at in self._read_at.values() if read_at > moment - REGULAR_SECONDS]
        return bool(regular) and min(regular) >= moment
