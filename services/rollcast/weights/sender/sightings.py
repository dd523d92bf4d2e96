"""Generator processes as the trainer itself has seen them: how much of its start-up time each may
claim.

its engine starts -- Starting(key), every few seconds -------------------> seen
it announces itself with the start-up time that no trainer has counted --> believed as far back as
                                                                           it was seen
"""

import math
import threading

LAPSE_SECONDS = 30.0
"""A process that is not heard of for longer counts as seen for the first time when it is heard of
again."""
UNSEEN_SECONDS = 120.0
"""Time that a process may claim beyond that, once: it can report only when its modules are loaded,
which took 64 s on a busy machine."""
EARLY_SECONDS = 30.0
"""After the trainer's port opened: processes that existed before are heard of by then, and are
believed."""
MAX_PROCESSES = 4_096
"""Remembered processes; for one more, the one heard of longest ago is forgotten."""
MAX_KEY_BYTES = 64


class Sightings:
    """Since when each process has been seen, by its key.

    Thread-safe; the caller passes the time.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._opened_at: float | None = None
        self._seen_intervals: dict[
            bytes, tuple[float, float]
        ] = {}  # since when it is seen without a lapse, and last

    def open(self, now_seconds: float) -> None:
        """The trainer's port opens. Until then every claim is believed."""
        self._opened_at = now_seconds

    def note(self, key: bytes, now_seconds: float) -> None:
        """The process of this key was heard of."""
        # The report comes before the announcement is checked, so the key may be anything.
        if not 0 < len(key) <= MAX_KEY_BYTES:
            return
        with self._lock:
            is_early = self._opened_at is None or now_seconds - self._opened_at <= EARLY_SECONDS
            since, last = self._seen_intervals.pop(
                key, (-math.inf if is_early else now_seconds - UNSEEN_SECONDS, now_seconds)
            )
            self._seen_intervals[key] = (
                since if now_seconds - last <= LAPSE_SECONDS else now_seconds,
                now_seconds,
            )
            while len(self._seen_intervals) > MAX_PROCESSES:
                del self._seen_intervals[next(iter(self._seen_intervals))]

    def claim(self, key: bytes, now_seconds: float) -> float:
        """The moment from which a process that announces itself now may count its devices."""
        if self._opened_at is None:
            return -math.inf
        with self._lock:
            self.note(key, now_seconds)
            since, _ = self._seen_intervals.get(key, (now_seconds - UNSEEN_SECONDS, now_seconds))
            # The same time must not be believed a second time.
            self.count(key, now_seconds)
        return since

    def count(self, key: bytes, until: float) -> None:
        """The time of this process is counted until that moment."""
        with self._lock:
            if key in self._seen_intervals:
                self._seen_intervals[key] = (until, until)
