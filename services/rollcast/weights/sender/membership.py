"""Which generators are removed and why: silent, disconnected, hung, failing ones are fenced,
leavers are confirmed.
"""

import threading
import time
from collections.abc import Callable, Collection
from queue import SimpleQueue

from rollcast.config.connections import Weights
from rollcast.telemetry import trainer_metrics, wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.sender.roster import Fault, Roster, Seat
from rollcast.wire.version import PolicyVersion

log = get_logger()


class Removals:
    """Calls `on_removed(generator, reason)` once for each removal, on its own thread, because it
    may wait for Redis.
    """

    def __init__(self, on_removed: Callable[[str, str], None]) -> None:
        self._on_removed = on_removed
        self._queue: SimpleQueue[tuple[str, str] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._report, name="weight-removals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, generator: str, reason: str) -> None:
        """Never waits."""
        self._queue.put((generator, reason))

    def stop(self, timeout_seconds: float) -> None:
        """Report the remaining removals, at most for `timeout_seconds`."""
        self._queue.put(None)
        self._thread.join(timeout_seconds)

    def _report(self) -> None:
        while (removed := self._queue.get()) is not None:
            try:
                self._on_removed(*removed)
            except Exception:
                log.exception(
                    "on_removed failed; the sweep of idle claims will find its tasks",
                    generator=removed[0],
                )


class Membership:
    """Not thread-safe: the publisher holds its lock around every call."""

    def __init__(
        self, roster: Roster, removals: Removals, settings: Weights, exporter: Exporter
    ) -> None:
        self.roster = roster
        self._removals = removals
        self._patience_seconds = settings.heartbeat_timeout_seconds
        # Silence, in heartbeats, after which a generator whose stream or group broke is fenced
        self._suspicion_seconds = min(self._patience_seconds, 3 * settings.heartbeat_seconds)
        self._exporter = exporter
        self._looked_at = time.monotonic()

    def look_for_faults(self, suspects: Collection[Seat], newest: PolicyVersion | None) -> bool:
        """Fence failing generators; returns whether there were any.

        `suspects`: seats that have not answered for a group that failed. `newest`: the newest
        version, for the metrics.
        """
        now_seconds = time.monotonic()
        # A long gap since the last look: this process was frozen, so that it heard nothing proves
        # nothing.
        if now_seconds - self._looked_at > self._patience_seconds / 2:
            for seat in self.roster:
                seat.heard_at = now_seconds
                seat.stepped_at = now_seconds
        self._looked_at = now_seconds
        is_any_fenced = False
        for seat in self.roster:
            fault = seat.fault(
                now_seconds, self._patience_seconds, self._suspicion_seconds, seat in suspects
            )
            if fault is not None:
                self.fence(seat, fault)
                is_any_fenced = True
        members = [seat.member(newest) for seat in self.roster]
        counts = {
            "joined": sum(member.joined for member in members),
            "ready": sum(member.ready for member in members),
        }
        for state, count in counts.items():
            self._exporter.set(trainer_metrics.GENERATORS, count, state=state)
        return is_any_fenced

    def fence(self, seat: Seat, fault: Fault) -> None:
        """Remove a generator permanently; its tasks go to others."""
        self.roster.fence(seat, fault)
        self._removals.add(seat.name, fault)
        self._exporter.add(wire_metrics.GENERATORS_FENCED, reason=fault)
        log.warning("a generator was fenced", generator=seat.name, reason=fault)

    def confirm_leavers(self) -> bool:
        """Release generators that asked to leave; returns whether there were any."""
        leavers = [seat for seat in self.roster if seat.leaving]
        for seat in leavers:
            self.roster.release(seat)
            self._removals.add(seat.name, "left")
            log.info("a generator left", generator=seat.name)
        return bool(leavers)
