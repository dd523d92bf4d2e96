"""A circuit breaker: a service that fails again and again is left alone for a while."""

import time
from collections.abc import Callable


class Circuit:
    """closed --failures in a row--> open --pause--> one may try --works--> closed
    `--fails--> open
    """

    def __init__(self, failures: int, pause_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._failed = 0
        self._closed_again_at = 0.0

    def allows(self) -> bool:
        """Whether a request may be made now; of an open one, once a pause."""
        if self._failed < self._most:
            return True
        if self._clock() < self._closed_again_at:
            return False
        self._closed_again_at = self._clock() + self._pause_seconds
        return True

    def note(self, *, worked: bool) -> None:
        """What became of a request."""
        self._failed = 0 if worked else self._failed + 1
        if self._failed >= self._most:
            self._closed_again_at = self._clock() + self._pause_seconds
