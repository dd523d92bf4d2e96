"""Versions in the store, at trainer rank 0: written on a thread of its own, removed when no
generator needs them.

    staging --take--> changes of every rank --> `entries` --> announced (store_rounds)
                      sometimes then an anchor, which is the same version whole

A version that is offered while one is written waits, and replaces an older one that waits: the next
changes then span several steps. The learner never waits for this thread, nor this thread for a
generator.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from rollcast.config.connections import WeightStore
from rollcast.config.errors import UserError
from rollcast.telemetry import wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.sender.lanes import LaneOrder, Lanes
from rollcast.weights.sender.rank_store import (
    ObjectKind,
    RankStore,
    WrittenObject,
    refusal_key,
    reply_key,
    until_written,
)
from rollcast.weights.sender.staging import Staging
from rollcast.weights.sender.wake import Wake
from rollcast.weights.transport.stored_object import StoredVersion
from rollcast.wire.version import PolicyVersion

log = get_logger()


@dataclass(eq=False)
class StoreWriter:
    """`wake.changed` guards `entries`, which this thread alone changes, and `wanted_anchor`."""

    settings: WeightStore
    rank_store: RankStore
    staging: Staging
    lanes: Lanes
    wake: Wake
    exporter: Exporter
    version_bytes: int
    """Size of a whole version in memory."""
    is_needed: Callable[[StoredVersion], bool] = lambda entry: False
    """Whether a generator still needs an old entry; called with the lock held."""

    def __post_init__(self) -> None:
        """Raises UserError: the store is too small."""
        # An anchor, changes of up to half the size, and the next anchor.
        needed_gib = 3 * self.version_bytes / 2**30
        if needed_gib > self.settings.max_gib:
            raise UserError(
                f"weights.store.max_gib = {self.settings.max_gib:g}: a version of this model has "
                f"{self.version_bytes / 2**30:.3g} GiB, and three of them must fit; set it to "
                f"{math.ceil(1000 * needed_gib) / 1000} or more"
            )
        self.entries: list[StoredVersion] = []
        """All versions in the store, in the order of writing."""
        self.written_at = 0.0
        """When an object was last written; monotonic seconds."""
        self.wanted_anchor: PolicyVersion | None = None
        """The version that a generator could not pull: it is to be written whole again."""
        self._restored: PolicyVersion | None = None
        self._next_is_whole = True
        self._thread = threading.Thread(target=self._run, name="weight-store", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float) -> None:
        """Call it after `wake.is_stopping` is set: the thread removes all objects in that time.

        The next trainer begins with a whole version, and removes what is left.
        """
        self._thread.join(timeout_seconds)

    @property
    def newest(self) -> PolicyVersion | None:
        """The newest version that generators can pull."""
        return self.entries[-1].version if self.entries else None

    def _run(self) -> None:
        while not self._is_stopping():
            with self.wake.changed:
                self.wake.changed.wait_for(self._is_due, 1.0)
            try:
                self._write_due()
            except Exception:
                # Without this thread no version would ever be published. The ranks' bases may
                # differ now.
                log.exception("a round of the store of weights failed")
                self.exporter.add(wire_metrics.WEIGHT_FAILURES, reason="store")
                self._next_is_whole = True
                time.sleep(1.0)
        # On this thread: for each object a storage that does not answer takes half a minute.
        self._remove(self.entries)

    def _is_stopping(self) -> bool:
        return self.wake.is_stopping

    def _is_due(self) -> bool:
        return self.wake.is_stopping or self.staging.newest() != self.newest or self._must_restore()

    def _must_restore(self) -> bool:
        # Once for each version: a store that damages its objects would else be written forever.
        wanted = self.wanted_anchor
        return wanted is not None and wanted == self.newest and wanted != self._restored

    def _write_due(self) -> None:
        self.staging.take()
        # Also one whose round failed.
        version = self.staging.current_version
        if version is None:
            return
        if version == self.newest:
            if self._must_restore():
                self._restored = version
                self._write("anchor", version)
                self._tidy()
            return
        written = self._write("whole" if self._next_is_whole else "changes", version)
        if written is None:
            return
        seconds = time.monotonic() - self.staging.current_offered_at
        self.exporter.observe(wire_metrics.WEIGHT_STORE_SECONDS, seconds)
        if written.base is not None and self._is_anchor_due():
            self._write("anchor", version)
        self._tidy()

    def _write(self, kind: ObjectKind, version: PolicyVersion) -> StoredVersion | None:
        """Let every rank write an object of the kind; None = stopped."""
        slot = self.staging.current
        self._make_room()
        # A folder is listed when a version is written whole, which is rare.
        if kind != "changes":
            self._remove_left_over(version)
        self.lanes.order(LaneOrder(0, slot=slot, version=version, kind=kind))
        write = partial(self.rank_store.write, kind, slot, version)
        parts = [until_written(write, self._is_stopping, self._note_failure)]
        other_ranks = range(1, self.lanes.count)
        parts += [self._wait_for_rank(rank, kind, version) for rank in other_ranks]
        written = [part for part in parts if part is not None]
        if len(written) < len(parts):
            return None
        assert len({part.base for part in written}) == 1, written
        entry = StoredVersion(version, written[0].base, tuple(part.stored for part in written))
        suffix = "whole" if entry.base is None else "changes"
        self.exporter.add(wire_metrics.WEIGHT_STORED_BYTES, entry.num_bytes, kind=suffix)
        with self.wake.changed:
            if kind == "whole":
                self._next_is_whole = False
            elif kind == "changes":
                # A whole version is about as short, and every generator can use it.
                self._next_is_whole = entry.num_bytes >= 0.9 * self._anchor().num_bytes
            self.entries.append(entry)
            self.written_at = time.monotonic()
            self.wake.notify()
        return entry

    def _wait_for_rank(
        self, rank: int, kind: ObjectKind, version: PolicyVersion
    ) -> WrittenObject | None:
        # Without a deadline: a rank that is lost ends the trainer.
        while not self._is_stopping():
            reply = self.lanes.take_reply(reply_key(version, kind, rank))
            if self.lanes.take_reply(refusal_key(version, kind, rank)) is not None:
                self._note_failure()
            if reply is not None:
                return WrittenObject.decode(reply)
            time.sleep(0.02)
        return None

    def _note_failure(self) -> None:
        """The store refused an object: it may be full."""
        self.exporter.add(wire_metrics.WEIGHT_FAILURES, reason="store")
        with self.wake.changed:
            old = self.entries[: self._anchor_index()]
        self._remove(old)

    def _anchor_index(self) -> int:
        """The last entry that is whole."""
        wholes = [i for i, entry in enumerate(self.entries) if entry.base is None]
        return wholes[-1] if wholes else 0

    def _anchor(self) -> StoredVersion:
        return self.entries[self._anchor_index()]

    def _is_anchor_due(self) -> bool:
        anchor = self._anchor()
        changes = self.entries[self._anchor_index() + 1 :]
        changed_bytes = sum(entry.num_bytes for entry in changes)
        # The next anchor must fit next to this one and its changes.
        is_half_full = anchor.num_bytes + changed_bytes > self._max_bytes / 2
        is_long = len(changes) >= self.settings.anchor_every
        return is_long or is_half_full or changed_bytes >= anchor.num_bytes

    @property
    def _max_bytes(self) -> float:
        return self.settings.max_gib * 2**30

    def _make_room(self) -> None:
        """Remove old entries while a whole version might not fit, needed or not."""
        while self._anchor_index() and self._is_too_large():
            self._remove(self.entries[:1])

    def _is_too_large(self) -> bool:
        return _total_bytes(self.entries) + self._anchor().num_bytes > self._max_bytes

    def _tidy(self) -> None:
        """Remove what no generator needs any more."""
        with self.wake.changed:
            old = self.entries[: self._anchor_index()]
            unneeded = [entry for entry in old if not self.is_needed(entry)]
        self._remove(unneeded)
        self.exporter.set(wire_metrics.WEIGHT_STORE_BYTES, _total_bytes(self.entries))

    def _remove_left_over(self, version: PolicyVersion) -> None:
        """Remove objects of killed processes; called while no rank writes."""
        known = {stored.name for entry in self.entries for stored in entry.objects}
        for name in until_written(self.rank_store.folder.names, self._is_stopping) or ():
            # A successor of this trainer may write already: its incarnation is higher. Other names
            # are not those of objects.
            with suppress(ValueError):
                owner = PolicyVersion.parse(name.partition("-")[0])
                if name not in known and owner.incarnation <= version.incarnation:
                    self.rank_store.folder.remove(name)

    def _remove(self, entries: Sequence[StoredVersion]) -> None:
        with self.wake.changed:
            self.entries = [entry for entry in self.entries if entry not in entries]
        # Without the lock: the storage may take long to answer.
        for entry in entries:
            for stored in entry.objects:
                self.rank_store.folder.remove(stored.name)


def _total_bytes(entries: Sequence[StoredVersion]) -> int:
    return sum(entry.num_bytes for entry in entries)
