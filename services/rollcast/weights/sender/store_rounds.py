"""Announces versions of the store to each generator, at its own pace and one at a time.

    a new stream, or behind   -> Publish names the objects that lead to the newest version
    Acknowledge               -> a member; the next Publish if there is a newer version by now
    Failed                    -> another Publish after a pause; the second time the version is
                                 written whole again, under other names

The trainer does not wait: a slow generator pulls the newest version when it has time, and the
staleness bound paces dispatch. No membership is fixed, so nothing has to be joined.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rollcast.telemetry import wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import BucketSpec, Manifest, manifest_to_proto
from rollcast.weights.sender.membership import Membership
from rollcast.weights.sender.roster import Seat
from rollcast.weights.sender.store_writer import StoreWriter
from rollcast.weights.transport.stored_object import StoredVersion
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

log = get_logger()


@dataclass(frozen=True)
class _Pull:
    """The last Publish to a generator."""

    number: int
    """0 = it failed, and is repeated at `retry_at`."""
    version: PolicyVersion
    entries: Sequence[StoredVersion]
    failures: int
    """Since the generator last acknowledged a version."""
    retry_at: float
    failing_since: float | None = None
    """Since when it could pull no version."""
    alone_since: float | None = None
    """Since when the store is known to work in spite of that."""


@dataclass(eq=False)
class StoreRounds:
    """Not thread-safe: the publisher holds its lock around every call."""

    membership: Membership
    writer: StoreWriter
    buckets: tuple[BucketSpec, ...]
    lm_head: str
    exporter: Exporter
    fail_seconds: float
    """How long a generator may fail to pull while others can."""
    _pulls: dict[Seat, _Pull] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._num_sent = 0
        self.roster = self.membership.roster
        self.writer.is_needed = self._is_needed

    def _is_needed(self, entry: StoredVersion) -> bool:
        """Whether a generator still pulls it, or continues with it."""
        return any(
            entry in pull.entries or (entry.base is not None and entry.base >= pull.version)
            for pull in self._pulls.values()
        )

    def turn(self) -> bool:
        """Send a Publish to every generator that is due; returns whether there was one."""
        self._pulls = {seat: pull for seat, pull in self._pulls.items() if seat in self.roster}
        newest = self.writer.newest
        if newest is None:
            return False
        self._fence_failing(newest)
        due = [seat for seat in self.roster if self._is_due(seat, newest)]
        for seat in due:
            self._announce(seat, newest, self.writer.entries)
        return bool(due)

    def note_answer(self, seat: Seat, message: weights_pb2.FromGenerator) -> None:
        """A generator has applied a version, or could not pull it."""
        if message.HasField("failed"):
            self._note_failed(seat, message.failed.epoch, message.failed.reason[:500])
            return
        newest = self.writer.newest
        version = PolicyVersion.from_proto(message.acknowledge.version)
        if newest is None or version > newest:
            return
        seat.acknowledge(message.acknowledge.epoch, version)
        seat.joined = True
        pull = self._pulls.get(seat)
        if pull is not None and pull.number == message.acknowledge.epoch:
            self._pulls[seat] = _Pull(pull.number, pull.version, (), failures=0, retry_at=0.0)
        if all(other.version == newest for other in self.roster):
            seconds = time.monotonic() - self.writer.staging.current_offered_at
            self.exporter.observe(wire_metrics.WEIGHT_SYNC_SECONDS, seconds)

    def _note_failed(self, seat: Seat, epoch: int, reason: str) -> None:
        pull = self._pulls.get(seat)
        if pull is None or pull.number != epoch:
            return
        failures = pull.failures + 1
        log.warning(
            "a generator could not pull a version",
            generator=seat.name,
            version=str(pull.version),
            failures=failures,
            reason=reason,
        )
        self.exporter.add(wire_metrics.WEIGHT_FAILURES, reason="pull")
        # At first it discards its version and begins with the anchor, in case only its own memory
        # or the changes were at fault. Then the anchor may be.
        if failures > 1:
            self.writer.wanted_anchor = pull.version
        # 0.2, 0.4, ... 12.8 seconds: a store that is away comes back to few questions.
        pause_seconds = 0.1 * 2 ** min(failures, 7)
        now_seconds = time.monotonic()
        self._pulls[seat] = replace(
            pull,
            number=0,
            entries=(),
            failures=failures,
            retry_at=now_seconds + pause_seconds,
            failing_since=now_seconds if pull.failing_since is None else pull.failing_since,
        )

    def _fence_failing(self, newest: PolicyVersion) -> None:
        """Fence generators that cannot pull while the store works, and another one has the newest
        version.

        Their rollouts become too old, and would hold the run up. A store that is away takes no
        object either: all wait for it.
        """
        can_be_pulled = any(seat.version == newest for seat in self.roster)
        now_seconds = time.monotonic()
        for seat, pull in list(self._pulls.items()):
            if pull.failing_since is None or not can_be_pulled:
                continue
            # After the second failure an anchor is written, so this is known soon.
            if pull.alone_since is None and self.writer.written_at > pull.failing_since:
                self._pulls[seat] = replace(pull, alone_since=now_seconds)
            alone_since = now_seconds if pull.alone_since is None else pull.alone_since
            # A pull that goes on may succeed, however slow it is; the generator ends one that reads
            # nothing.
            if pull.number == 0 and now_seconds - alone_since > self.fail_seconds:
                self.membership.fence(seat, "failed")

    def _is_due(self, seat: Seat, newest: PolicyVersion) -> bool:
        if seat.leaving or not seat.connected:
            return False
        pull = self._pulls.get(seat)
        if pull is None:
            return True
        if pull.number == 0:
            return time.monotonic() >= pull.retry_at
        return seat.answer is not None and seat.version != newest

    def _announce(
        self, seat: Seat, newest: PolicyVersion, entries: Sequence[StoredVersion]
    ) -> None:
        """Name the newest anchor, what follows it, and what follows the version that it holds."""
        wholes = [index for index, entry in enumerate(entries) if entry.base is None]
        after_held = [
            index
            for index, entry in enumerate(entries)
            if seat.version is not None and entry.base == seat.version
        ]
        first = min([wholes[-1], *after_held])
        self._num_sent += 1
        former = self._pulls.get(seat, _Pull(0, newest, (), failures=0, retry_at=0.0))
        named = tuple(entries[first:])
        self._pulls[seat] = replace(former, number=self._num_sent, version=newest, entries=named)
        seat.epoch = self._num_sent
        seat.answer = None
        publish = weights_pb2.Publish(
            epoch=self._num_sent,
            manifest=manifest_to_proto(Manifest(newest, self.buckets, self.lm_head)),
            stored=[entry.to_proto() for entry in entries[first:]],
        )
        seat.send(weights_pb2.FromTrainer(publish=publish))
