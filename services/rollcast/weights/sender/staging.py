"""The two snapshots of what a trainer rank holds, in host memory: training never writes under a broadcast.

Every rank has two slots with its own rows, in the published dtype. Rank 0 decides for all what becomes of which:

spare --stage()--> learners fill --offer()--> waiting --take()--> current, until the next take: broadcast, sent again
  ^                                              |                    |    after a failure, given to joiners
  +---- stage(): withdrawn, a newer one follows -+                    |
  +------------------------- take(): its successor is current -------+
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import DTYPE_BYTES, BucketSpec
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.pinned import pin
from rollcast.weights.transport.changes import pack_changes
from rollcast.weights.transport.checksum import checksum
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import Changes
from rollcast.wire.version import PolicyVersion

log = get_logger()
CPU = torch.device("cpu")


class StagingSlots:
    """What one rank stages; thread-safe. Dropped groups are waited for before a slot is written again."""

    def __init__(self, shard: Sequence[BucketSpec]) -> None:
        """`shard`: this rank's rows of every bucket."""
        self._lock = threading.Lock()
        self._comparing = threading.Lock()
        self._shard = shard
        self._snapshots = [self._made(), self._made()]
        self._readers: list[GroupWorker] = []  # of dropped groups, perhaps still inside a broadcast

    def __getitem__(self, slot: int) -> Snapshot:
        return self._snapshots[slot]

    def fill(
        self, slot: int, version: PolicyVersion, patience_seconds: float, write: Callable[[Snapshot], None]
    ) -> None:
        """Let `write` fill a slot; waits at most `patience_seconds` for broken groups to let go of it."""
        stuck = self.wait_for_readers(patience_seconds)
        if stuck:
            log.warning("a broken group still holds its buffers; new ones are made", groups=stuck)
            self._snapshots[slot] = self._made()
        snapshot = self._snapshots[slot]
        with self._comparing:
            snapshot.version = snapshot.checksum = None
        write(snapshot)
        if not torch.cuda.is_available():  # once, though it may be sent again and again; a GPU sums up what it sends
            snapshot.checksum = checksum(snapshot.buffers, CPU)
        snapshot.version = version

    def changes(self, slot: int, base: PolicyVersion) -> Changes:
        """What changed in a piece of what `slot` holds since `base`, for as long as the other slot holds that."""

        def of_piece(index: int, piece: slice) -> torch.Tensor | None:
            new, old = self._snapshots[slot], self._snapshots[1 - slot]
            item_bytes = DTYPE_BYTES[new.specs[index].tensors[0].dtype]
            with self._comparing:
                if old.version != base:
                    return None
                return pack_changes(new.buffers[index][piece], old.buffers[index][piece], item_bytes)

        return of_piece

    def let_go(self, worker: GroupWorker) -> None:
        """The group of `worker` was dropped; its thread may take a while to notice."""
        worker.abandon()
        with self._lock:
            self._readers = [reader for reader in self._readers if not reader.ended()] + [worker]

    def wait_for_readers(self, patience_seconds: float) -> int:
        """Wait until dropped groups are over; returns how many are not."""
        with self._lock:
            readers = list(self._readers)
        deadline = time.monotonic() + patience_seconds
        return sum(not worker.ended(max(0.0, deadline - time.monotonic())) for worker in readers)

    def _made(self) -> Snapshot:
        made = Snapshot.on(CPU, self._shard)
        return pin(made) if torch.cuda.is_available() else made


class Staging:
    """At rank 0; thread-safe: the learner stages and offers, the control thread takes and sends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare = 0
        self.current = 1
        self.current_version: PolicyVersion | None = None
        self.previous: PolicyVersion | None = None
        """What the spare slot still holds; None = nothing of use."""
        self.current_offered_at = 0.0
        self._waiting: PolicyVersion | None = None
        self._offered_at = 0.0

    def stage(self) -> int:
        """The spare slot, to be filled; what waits there is withdrawn."""
        with self._lock:
            self._waiting = self.previous = None
            return self._spare

    def offer(self, slot: int, version: PolicyVersion) -> None:
        """The spare slot is filled on every rank."""
        with self._lock:
            assert slot == self._spare, "publish what stage() gave"
            assert self.current_version is None or version > self.current_version, version
            self._waiting, self._offered_at = version, time.monotonic()

    def take(self) -> PolicyVersion | None:
        """Make the version that waits the current one, if one waits."""
        with self._lock:
            version, self._waiting = self._waiting, None
            if version is not None:
                self.current, self._spare = self._spare, self.current
                self.previous, self.current_version = self.current_version, version
                self.current_offered_at = self._offered_at
            return version

    def forget_previous(self) -> None:
        """Changes are enough for nobody, until the next version."""
        with self._lock:
            self.previous = None

    def newest(self) -> PolicyVersion | None:
        """The version that waits, else the current one."""
        with self._lock:
            return self._waiting or self.current_version
