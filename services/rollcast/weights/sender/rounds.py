"""Rounds of one or several epochs at the same time: opened, or sent to, until all have answered.

    open    an epoch for each group of seats   -> every seat has answered Joined
    send    a version in each of these epochs  -> every seat has answered Acknowledge

Meanwhile faults of all generators are looked for. A lane that hangs is left behind, and a seat that
owes its answer for too long is fenced.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rollcast.config.connections import Weights
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.telemetry import wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import (
    BucketSpec,
    Manifest,
    apply_seconds,
    num_pieces,
    total_bytes,
)
from rollcast.weights.sender.epoch import Epoch
from rollcast.weights.sender.membership import Membership
from rollcast.weights.sender.roster import Seat
from rollcast.weights.sender.staging import Staging, StagingSlots
from rollcast.weights.sender.wake import Wake
from rollcast.weights.transport.process_group import RendezvousStore

FAULT_CHECK_SECONDS = 0.1
"""Interval of looking for faults."""

log = get_logger()


class MakeEpoch(Protocol):
    """Makes an epoch with the settings of the run."""

    def __call__(self, number: int, seats: Sequence[Seat], *, store: RendezvousStore) -> Epoch: ...


@dataclass(eq=False)
class EpochRounds:
    """Used by the publisher's control thread alone, but for `no_room`, which `changed` guards."""

    settings: Weights
    make_epoch: MakeEpoch
    buckets: Sequence[BucketSpec]
    num_lanes: int
    """Number of trainer ranks."""
    slots: StagingSlots
    """The slots of rank 0."""
    staging: Staging
    membership: Membership
    exporter: Exporter
    wake: Wake
    no_room: OutOfMemory | None = None
    """The error if rank 0 had no memory to send from: no version can be sent."""

    def __post_init__(self) -> None:
        self._epochs_made = 0
        pieces = num_pieces(bucket.num_bytes for bucket in self.buckets)
        self._transfer_seconds = pieces * self.settings.bucket_timeout_seconds
        self._acknowledge_seconds = apply_seconds(
            self.settings.acknowledge_timeout_seconds, total_bytes(self.buckets)
        )

    def open(self, groups: list[list[Seat]], store: RendezvousStore) -> list[Epoch]:
        """Make an epoch of each group of seats; returns those that did not fail or lose one."""
        epochs = []
        with self.wake.changed:
            for seats in groups:
                self._epochs_made += 1
                epochs.append(self.make_epoch(self._epochs_made, seats, store=store))
            self.exporter.set(wire_metrics.WEIGHT_EPOCH, self._epochs_made)
        self._wait_for_answers(epochs, self.settings.opening_timeout_seconds, "join")
        broken = [
            epoch
            for epoch in epochs
            if epoch.failed or epoch.has_lost_a_seat(self.membership.roster)
        ]
        for epoch in broken:
            epoch.drop(self.slots)
        return [epoch for epoch in epochs if epoch not in broken]

    def send(self, epochs: list[Epoch], manifest: Manifest, phase: str) -> None:
        """Broadcast `current` in each epoch, and wait for the acknowledgements."""
        assert self.staging.current_version == manifest.version
        with self.wake.changed:
            for epoch in epochs:
                epoch.broadcast(self.slots, self.staging.current, manifest)
        self._wait_for_answers(epochs, self._transfer_seconds, phase)

    def _wait_for_answers(self, epochs: list[Epoch], own_seconds: float, phase: str) -> None:
        """Wait until rank 0's part is over and every seat has answered or was removed.

        own_seconds bounds rank 0's part, and again the parts of other ranks, which may be slower. A
        seat that has not answered `apply_seconds` after that is fenced.
        """
        other_lanes_seconds = own_seconds if self.num_lanes > 1 else 0.0
        is_opening = phase == "join"
        for epoch in epochs:
            epoch.work.add_done_callback(lambda _: self.wake.notify())
        with self.wake.changed:
            own_deadline = time.monotonic() + own_seconds + self.settings.bucket_timeout_seconds
            answers_deadline = None
            while not self.wake.is_stopping:
                self.look_for_faults(epochs)
                if is_opening:
                    for epoch in epochs:
                        epoch.give_up_if_lost(self.membership.roster)
                working = [epoch for epoch in epochs if epoch.working]
                # The others of a group that does not open would answer at their deadline only: the
                # next Join ends it.
                awaited_epochs = [epoch for epoch in epochs if not (is_opening and epoch.failed)]
                owing = [
                    seat
                    for epoch in awaited_epochs
                    for seat in epoch.unanswered_seats()
                    if seat in self.membership.roster
                ]
                now_seconds = time.monotonic()
                # Everything is sent: from now on the seats have a limited time to answer.
                if not working and answers_deadline is None:
                    answers_deadline = now_seconds + other_lanes_seconds + self._acknowledge_seconds
                if not working and not owing:
                    break
                # The thread is stuck in a collective that its own deadline does not end: it is left
                # behind.
                if working and now_seconds > own_deadline:
                    for epoch in working:
                        epoch.give_up("hangs")
                elif answers_deadline is not None and now_seconds > answers_deadline:
                    for seat in owing:
                        self.membership.fence(seat, "unacknowledged")
                        self.wake.notify()
                else:
                    self.wake.changed.wait(FAULT_CHECK_SECONDS)
            self._note_failures(epochs, phase)

    def _note_failures(self, epochs: Sequence[Epoch], phase: str) -> None:
        """Report the groups that failed, and count them against the generators that may be the
        cause.
        """
        failed_epochs = [epoch for epoch in epochs if epoch.failed]
        for epoch in failed_epochs:
            log.warning(
                "a weight group failed", epoch=epoch.number, phase=phase, reasons=epoch.reasons()
            )
            self.exporter.add(wire_metrics.WEIGHT_FAILURES, reason=phase)
            self.no_room = self.no_room or epoch.no_room
        if failed_epochs:
            # Pause before the next attempt, or a peer that fails immediately would keep this thread
            # busy.
            self.wake.changed.wait(FAULT_CHECK_SECONDS)
            # The stream of a member that died may end a little later than its group.
            self.look_for_faults(epochs)
        for epoch in failed_epochs:
            self.membership.roster.blame(epoch.seats)

    def look_for_faults(self, epochs: Sequence[Epoch] = ()) -> None:
        """Fence failing generators. Called with the lock held, like all of `Membership`."""
        suspects = {seat for epoch in epochs if epoch.failed for seat in epoch.unanswered_seats()}
        if self.membership.look_for_faults(suspects, self.staging.newest()):
            self.wake.notify()
