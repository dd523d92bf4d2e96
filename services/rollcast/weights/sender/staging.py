"""The two snapshots of a trainer rank's rows in host memory: training never writes into one that is
being sent.

Every rank has two slots with its own rows, in the published dtype. Rank 0 decides for all ranks
which slot is used:

spare --stage()--> learners fill --offer()--> waiting --take()--> current
  ^                                              |                   |
  +---- stage(): withdrawn, a newer one follows -+                   |
  +------------------------ take(): its successor is current --------+

Until the next take the current one is broadcast, sent again after a failure, and given to joiners.
"""

import threading
import time
from collections.abc import Callable, Sequence

import torch

from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import BucketSpec
from rollcast.weights.plan.page_locked import lock_pages
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.transport.checksum import checksum
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.wire.version import PolicyVersion

CPU = torch.device("cpu")

log = get_logger()


class StagingSlots:
    """The slots of one rank; thread-safe.

    Before a slot is written again, dropped groups are waited for.
    """

    def __init__(self, shard: Sequence[BucketSpec]) -> None:
        """`shard`: this rank's rows of every bucket."""
        self._lock = threading.Lock()
        self.shard = shard
        self._snapshots = [self._make_snapshot(), self._make_snapshot()]
        self._readers: dict[
            GroupWorker, set[int]
        ] = {}  # of dropped groups, with the slots that they may still read

    def __getitem__(self, slot: int) -> Snapshot:
        return self._snapshots[slot]

    def fill(
        self,
        slot: int,
        version: PolicyVersion,
        patience_seconds: float,
        write: Callable[[Snapshot], None],
    ) -> None:
        """Let `write` fill a slot; waits at most `patience_seconds` for dropped groups."""
        # A dropped group may still read the slot inside a collective: its memory is then left to
        # it.
        stuck = self._still_reading(slot, patience_seconds)
        if stuck:
            log.warning(
                "a broken group still holds its buffers; new ones are made", groups=len(stuck)
            )
            self._snapshots[slot] = self._make_snapshot()
            # Their buffers are no slot any more, so that they never hold this one up again.
            with self._lock:
                for reader in stuck:
                    self._readers.get(reader, set()).discard(slot)
        snapshot = self._snapshots[slot]
        snapshot.version = None
        snapshot.checksum = None
        write(snapshot)
        # Once, although it may be sent several times. A GPU sums the pieces that it sends.
        if not torch.cuda.is_available():
            snapshot.checksum = checksum(snapshot.buffers, CPU)
        snapshot.version = version

    def let_go(self, worker: GroupWorker) -> None:
        """The group of `worker` was dropped."""
        worker.abandon()
        # Its thread takes until the deadline of a piece to notice, and may read a slot until then.
        with self._lock:
            self._readers = {
                reader: slots
                for reader, slots in self._readers.items()
                if slots and not reader.wait_released()
            }
            self._readers[worker] = set(range(len(self._snapshots)))

    def wait_for_readers(self, patience_seconds: float) -> int:
        """Wait until dropped groups are over; returns how many are not."""
        deadline = time.monotonic() + patience_seconds
        return max(
            len(self._still_reading(slot, deadline - time.monotonic()))
            for slot in range(len(self._snapshots))
        )

    def _still_reading(self, slot: int, patience_seconds: float) -> list[GroupWorker]:
        """Wait until dropped groups no longer read a slot; returns those that still do."""
        with self._lock:
            readers = [reader for reader, slots in self._readers.items() if slot in slots]
        deadline = time.monotonic() + patience_seconds
        return [
            reader
            for reader in readers
            if not reader.wait_released(max(0.0, deadline - time.monotonic()))
        ]

    def _make_snapshot(self) -> Snapshot:
        snapshot = Snapshot.on(CPU, self.shard)
        lock_pages(snapshot)
        return snapshot


class Staging:
    """Rank 0's view of the slots; thread-safe: the learner stages and offers, the control thread
    takes and sends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare = 0
        self.current = 1
        self.current_version: PolicyVersion | None = None
        self.current_offered_at = 0.0
        self._waiting: PolicyVersion | None = None
        self._offered_at = 0.0

    def stage(self) -> int:
        """The spare slot, to be filled; a version that waits there is withdrawn."""
        with self._lock:
            self._waiting = None
            return self._spare

    def offer(self, slot: int, version: PolicyVersion) -> None:
        """The spare slot is filled on every rank."""
        with self._lock:
            assert slot == self._spare, "publish what stage() gave"
            assert self.current_version is None or version > self.current_version, version
            self._waiting = version
            self._offered_at = time.monotonic()

    def take(self) -> PolicyVersion | None:
        """Make the version that waits the current one, if one waits."""
        with self._lock:
            version = self._waiting
            self._waiting = None
            if version is not None:
                self.current, self._spare = self._spare, self.current
                self.current_version = version
                self.current_offered_at = self._offered_at
            return version

    def newest(self) -> PolicyVersion | None:
        """The waiting version, else the current one."""
        with self._lock:
            return self._waiting or self.current_version
