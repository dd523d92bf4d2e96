"""The two snapshots at trainer rank 0: training never writes under a broadcast.

spare --stage()--> learner fills --offer()--> waiting --take()--> current, until the next take: broadcast, sent again
  ^                                              |                    |    after a failure, given to joiners
  +---- stage(): withdrawn, a newer one follows -+                    |
  +------------------------- take(): its successor is current -------+
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.group_worker import GroupWorker
from rollcast.weights.manifest import BucketSpec
from rollcast.weights.snapshot import Snapshot
from rollcast.wire.version import PolicyVersion

log = get_logger()


class Staging:
    """Thread-safe: the learner stages and offers, the control thread takes and sends."""

    def __init__(self, buckets: Sequence[BucketSpec], device: torch.device) -> None:
        self._lock = threading.Lock()
        self._buckets = buckets
        self._device = device
        self._spare = Snapshot(buckets, device)
        self.current = Snapshot(buckets, device)
        self.current_offered_at = 0.0
        self._waiting: PolicyVersion | None = None
        self._offered_at = 0.0
        self._readers: list[GroupWorker] = []  # of dropped groups, perhaps still inside a broadcast

    def stage(self, patience_seconds: float) -> Snapshot:
        """The spare snapshot, to be filled; waits at most `patience_seconds` for broken groups to let go of it."""
        with self._lock:
            self._waiting = None
        stuck = self.wait_for_readers(patience_seconds)
        with self._lock:
            if stuck:
                log.warning("a broken group still holds its buffers; new ones are made", groups=stuck)
                self._spare = Snapshot(self._buckets, self._device)
            self._spare.version = None
            return self._spare

    def offer(self, snapshot: Snapshot, version: PolicyVersion) -> None:
        """The spare one is filled."""
        with self._lock:
            assert snapshot is self._spare, "publish what stage() gave"
            assert self.current.version is None or version > self.current.version, version
            snapshot.version = version
            self._waiting, self._offered_at = version, time.monotonic()

    def take(self) -> PolicyVersion | None:
        """Make the version that waits the current one, if one waits."""
        with self._lock:
            version, self._waiting = self._waiting, None
            if version is not None:
                self.current, self._spare = self._spare, self.current
                self.current_offered_at = self._offered_at
            return version

    def newest(self) -> PolicyVersion | None:
        """The version that waits, else the current one."""
        with self._lock:
            return self._waiting or self.current.version

    def let_go(self, worker: GroupWorker) -> None:
        """The group of `worker` was dropped; its thread may take a while to notice."""
        worker.abandon()
        with self._lock:
            self._readers = [reader for reader in self._readers if not reader.ended()] + [worker]

    def wait_for_readers(self, patience_seconds: float) -> int:
        """Wait until dropped groups are over; returns how many are not, which are waited for no more."""
        with self._lock:
            readers, self._readers = self._readers, []
        deadline = time.monotonic() + patience_seconds
        return sum(not worker.ended(max(0.0, deadline - time.monotonic())) for worker in readers)
