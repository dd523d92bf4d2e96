"""Publishing of weights at trainer rank 0: membership, epochs and broadcasts are decided here and nowhere else.

    main thread      stage() -> all ranks fill -> publish(slot, version)     never waits for a generator
    control thread   the only one that changes members, epochs and `current`; each turn, in this order:
                       1. a published version waits      -> it becomes `current` (an older one that waited is skipped)
                       2. leavers                        -> confirm
                       3. members != those of the epoch  -> make the next epoch
                       4. a member is behind `current`   -> broadcast, await acknowledgements; on failure drop the
                                                            epoch: the next turn makes a new one and sends again
                       5. joiners waited long enough     -> `current` through private groups, then they are members
    group workers    one thread for each group, the only ones inside a collective
    stream threads   two for each generator: they note what it says and wake the control thread
    removal thread   tells `on_removed`, which may wait for Redis

The turn looks only at the state, so it does not matter how a publish was interrupted: whoever is behind is served
again. A frozen generator fails the broadcast after one bucket's deadline, is silent by then, and is fenced. A frozen
trainer finds everybody silent when it wakes: it forgives them instead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import torch

from rollcast.config.out_of_memory import OutOfMemory
from rollcast.config.services import Rpc, Weights
from rollcast.connections.grpc import start_server
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import Manifest, TensorSpec, num_pieces, plan_buckets, total_bytes
from rollcast.weights.sender.epoch import Epoch
from rollcast.weights.sender.lanes import ONE_LANE, Lanes
from rollcast.weights.sender.removals import Removals
from rollcast.weights.sender.roster import Member, Outgoing, Roster, Seat, SeatAnswer
from rollcast.weights.sender.sharing import Sharing
from rollcast.weights.sender.staging import Staging, StagingSlots
from rollcast.weights.sender.sync_server import WeightSyncService
from rollcast.weights.transport.lane_transfer import pieces_at_once
from rollcast.weights.transport.process_group import RendezvousStore
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION, PolicyVersion
from rollcast.wire.weights_pb2_grpc import add_WeightSyncServicer_to_server

TICK_SECONDS = 0.1
"""How often faults are looked for."""
MISSED_HEARTBEATS = 3
"""Silence, in heartbeats, that convicts a generator whose stream or group broke."""

log = get_logger()


class Publisher:
    """See the module. All methods but `publish` and `stage` may be called from any thread."""

    def __init__(
        self,
        *,
        weights: Weights,
        rpc: Rpc,
        incarnation: int,
        history: Sequence[tuple[int, int]],
        lm_head: str,
        specs: Sequence[TensorSpec],
        device: torch.device,
        exporter: Exporter,
        on_removed: Callable[[str, str], None],
        slots: StagingSlots,
        lanes: Lanes = ONE_LANE,
        router_replay: bool = False,
        secret_place: str | None = None,
    ) -> None:
        """history: surviving (incarnation, last_step) of older incarnations. device: that the groups send from.
        slots: of this rank, filled by the learner. lanes: of all ranks. secret_place: as for `start_server`.

        on_removed(generator, reason): called once, from a thread of its own, when a generator was fenced or has left.
        """
        self._settings, self._incarnation = weights, incarnation
        self._rpc, self._secret_place = rpc, secret_place
        self._welcome = weights_pb2.Welcome(
            incarnation=incarnation,
            wire=WIRE_VERSION,
            history=[weights_pb2.SurvivingIncarnation(incarnation=i, last_step=last_step) for i, last_step in history],
        )
        self._lm_head, self._device, self._exporter = lm_head, device, exporter
        self._buckets = plan_buckets(specs, weights.bucket_bytes)
        self._lanes, self._slots = lanes, slots
        pieces = num_pieces(bucket.num_bytes for bucket in self._buckets)
        self._transfer_seconds = pieces * weights.bucket_timeout_seconds
        self._suspicion_seconds = min(weights.heartbeat_timeout_seconds, MISSED_HEARTBEATS * weights.heartbeat_seconds)

        self._staging = Staging()
        self._changed = threading.Condition()  # guards everything below
        self._sharing = Sharing(self._changed)
        self._roster = Roster(incarnation, lm_head, history, router_replay=router_replay)
        self._current: Manifest | None = None
        self._epoch: Epoch | None = None
        self._epochs_made = 0
        self._looked_at = time.monotonic()
        self._news = False  # something happened since the control thread began its turn
        self._stopping = False
        self._no_room: OutOfMemory | None = None
        self._removals = Removals(on_removed)

    def start(self) -> int:
        """Serve; returns the gRPC port. Raises UserError where it is taken."""
        self._roster.sightings.open(time.monotonic())
        self._store = RendezvousStore(self._rpc.bind)
        register = partial(add_WeightSyncServicer_to_server, WeightSyncService(self, self._roster.sightings))
        self._server, port = start_server(self._rpc, register, setting="rpc.port", secret_place=self._secret_place)
        self._thread = threading.Thread(target=self._control, name="weight-control", daemon=True)
        self._thread.start()
        self._removals.start()
        log.info("weight sync listens", port=port, megabytes=round(total_bytes(self._buckets) / 1e6, 1))
        return port

    def stop(self, deadline_seconds: float) -> None:
        """End; generators keep their weights and wait for the next incarnation."""
        with self._changed:
            self._stopping = True
            self._notify()
        self._server.stop(grace=0).wait(deadline_seconds)
        self._thread.join(deadline_seconds)
        self._removals.stop(deadline_seconds)
        self._drop_epoch()
        self._slots.wait_for_readers(deadline_seconds)

    def stage(self) -> int:
        """The slot that is not being broadcast, to be filled by the learners of all ranks.

        If a version was published and its broadcast has not begun, it is withdrawn: the next one takes its place.
        """
        return self._staging.stage()

    def publish(self, slot: int, version: PolicyVersion) -> None:
        """Hand over a slot that every rank has filled; returns at once. The first call makes joining possible."""
        assert version.incarnation == self._incarnation, version
        self._staging.offer(slot, version)
        self._notify()

    def members(self) -> list[Member]:
        """Every generator that has a place, joined or not yet. Raises OutOfMemory where no version can be sent."""
        newest = self._staging.newest()
        with self._changed:
            if self._no_room is not None:
                raise self._no_room
            return [seat.member(newest) for seat in self._roster]

    def lowest_step(self) -> int | None:
        """Oldest step that any generator may sample with, those included that reconnect; None where none holds any."""
        with self._changed:
            return self._roster.lowest_step()

    def hand_over(self, generator: str, sequences: Sequence[int]) -> bool:
        """Ask for these tasks back, unfinished; False = that generator has no place, or no stream: nobody was asked."""
        with self._changed:
            return self._roster.hand_over(generator, sequences)

    def wait_acknowledged(self, step: int, timeout_seconds: float) -> bool:
        """Wait until `lowest_step` is >= step; True at once where nobody holds weights."""
        with self._changed:
            return self._changed.wait_for(lambda: self._acknowledged(step), timeout_seconds)

    def kept_away(self, step: int, timeout_seconds: float) -> AbstractContextManager[None]:
        """Nothing is sent within, to members or to joiners, once `step` was acknowledged and nobody is due to join."""
        return self._sharing.held(lambda: not self._acknowledged(step) or bool(self._due_joiners()), timeout_seconds)

    def _acknowledged(self, step: int) -> bool:
        lowest = self._roster.lowest_step()
        return lowest is None or lowest >= step

    # What the streams tell (SyncEvents)

    def announced(self, announce: weights_pb2.Announce, outgoing: Outgoing) -> Seat | None:
        with self._changed:
            if isinstance(seat := self._roster.admit(announce, outgoing, time.monotonic()), Seat):
                seat.send(weights_pb2.FromTrainer(welcome=self._welcome))
                log.info("a generator announced itself", generator=seat.name, holds=str(seat.version))
                self._notify()
                return seat
            if seat is not None:
                log.warning("a generator was refused", generator=announce.generator, reason=seat.reason)
                outgoing.put(seat)
            return None

    def received(self, seat: Seat, message: weights_pb2.FromGenerator) -> None:
        with self._changed:
            if seat not in self._roster:
                return  # fenced; it has been told
            seat.heard_at = time.monotonic()
            match message.WhichOneof("kind"):
                case "heartbeat":
                    seat.beat(message.heartbeat, seat.heard_at)
                    return
                case "joined":
                    seat.respond(message.joined.epoch, SeatAnswer(good=True))
                case "acknowledge":
                    version = PolicyVersion.from_proto(message.acknowledge.version)
                    if self._current is not None and version == self._current.version:
                        seat.acknowledge(message.acknowledge.epoch, version)
                case "failed":
                    seat.respond(message.failed.epoch, SeatAnswer(good=False, reason=message.failed.reason[:500]))
                case "leaving":
                    seat.leaving = True
            self._notify()

    def disconnected(self, seat: Seat) -> None:
        with self._changed:
            seat.connected = False
            self._notify()

    # The control thread

    def _control(self) -> None:
        while not self._stopping:
            with self._changed:
                self._news = False
            try:
                idle = not self._turn()
            except Exception:
                # Losing this thread would stop the run in silence; a turn starts from the state, so it can be repeated.
                log.exception("a turn of weight sync failed")
                self._exporter.add(names.WEIGHT_FAILURES, reason="control")
                idle = True
            with self._changed:
                if idle and not self._news:
                    self._changed.wait(TICK_SECONDS)

    def _turn(self) -> bool:
        """Do everything that is due; False = nothing was."""
        version = self._staging.take()
        if version is not None:
            self._current = Manifest(version, self._buckets, self._lm_head)
        with self._changed:
            self._look_for_faults()
            left = self._confirm_leavers()
            joined, joiners = self._roster.joined(), self._due_joiners()
            if self._epoch is not None and set(self._epoch.seats) != set(joined):
                self._drop_epoch()
        if self._current is None:
            return left
        with self._sharing.broadcasting() as may_begin:
            if not may_begin:
                return left
            behind = any(seat.version != self._current.version for seat in joined)
            if joined and self._epoch is None:
                self._epoch = next(iter(self._open([joined])), None)
            if behind and self._epoch is not None:
                self._serve(self._epoch, self._current)
            if joiners:
                self._admit(joiners, self._current)
            return left or behind or bool(joiners)

    def _confirm_leavers(self) -> bool:
        leavers = [seat for seat in self._roster if seat.leaving]
        for seat in leavers:
            self._roster.release(seat)
            self._removals.add(seat.name, "left")
            log.info("a generator left", generator=seat.name)
        return bool(leavers)

    def _serve(self, epoch: Epoch, current: Manifest) -> None:
        """Send `current` to all members."""
        self._send([epoch], current, "publish", self._base(epoch))
        if epoch.failed:
            self._staging.forget_previous()  # from now on: somebody may not hold the base
            self._drop_epoch()
        else:
            self._exporter.observe(names.WEIGHT_SYNC_SECONDS, time.monotonic() - self._staging.current_offered_at)

    def _due_joiners(self) -> list[Seat]:
        return self._roster.due_joiners(time.monotonic() - self._settings.coalesce_seconds)

    def _admit(self, joiners: list[Seat], current: Manifest) -> None:
        """Bring joiners to `current`, each through a private group, some side by side; then they are members."""
        behind = [seat for seat in joiners if seat.version != current.version]
        at_once = pieces_at_once(self._lanes.count)  # each group has one on every rank's device
        for first in range(0, len(behind), at_once):
            groups = self._open([[seat] for seat in self._roster.still_joining(behind[first : first + at_once])])
            self._send(groups, current, "catch_up", None)
            for epoch in groups:
                epoch.drop(self._slots)
        with self._changed:
            for seat in joiners:
                seat.joined = seat in self._roster and seat.version == current.version
            self._notify()

    def _open(self, groups: list[list[Seat]]) -> list[Epoch]:
        """Make one epoch for each group of seats; those that failed or lost a seat are dropped again."""
        epochs = []
        with self._changed:
            for seats in groups:
                self._epochs_made += 1
                epoch = Epoch(
                    self._epochs_made,
                    seats,
                    device=self._device,
                    host=self._rpc.host,
                    store=self._store,
                    timeout_seconds=self._settings.bucket_timeout_seconds,
                    lanes=self._lanes,
                )
                epochs.append(epoch)
            self._exporter.set(names.WEIGHT_EPOCH, self._epochs_made)
        self._wait_for_answers(epochs, self._settings.bucket_timeout_seconds, "join")
        broken = [epoch for epoch in epochs if epoch.failed or any(seat not in self._roster for seat in epoch.seats)]
        for epoch in broken:
            epoch.drop(self._slots)
        return [epoch for epoch in epochs if epoch not in broken]

    def _base(self, epoch: Epoch) -> PolicyVersion | None:
        """The version since which the changes are enough; None = all of the current one is sent."""
        base = self._staging.previous if self._settings.encoding == "changed" else None
        return base if all(seat.version == base for seat in epoch.seats) else None

    def _send(self, epochs: list[Epoch], manifest: Manifest, phase: str, base: PolicyVersion | None) -> None:
        """Broadcast `current` in each epoch, and wait for the acknowledgements."""
        assert self._staging.current_version == manifest.version
        with self._changed:
            for epoch in epochs:
                epoch.broadcast(self._slots, self._staging.current, manifest, base)
        self._wait_for_answers(epochs, self._transfer_seconds, phase)

    def _wait_for_answers(self, epochs: list[Epoch], own_seconds: float, phase: str) -> None:
        """Wait until rank 0's part is over and every seat has answered or was removed.

        own_seconds bounds rank 0's part, and once more the parts of other ranks, which may be slower. Whoever has not
        answered acknowledge_timeout_seconds after that is fenced.
        """
        started, others = time.monotonic(), own_seconds if self._lanes.count > 1 else 0.0
        for epoch in epochs:
            epoch.work.add_done_callback(lambda _: self._notify())
        with self._changed:
            own_deadline = started + own_seconds + self._settings.bucket_timeout_seconds
            answers_deadline = None
            while not self._stopping:
                self._look_for_faults(epochs)
                working = [epoch for epoch in epochs if epoch.working]
                owing = [seat for epoch in epochs for seat in epoch.unanswered() if seat in self._roster]
                now = time.monotonic()
                if not working and answers_deadline is None:
                    answers_deadline = now + others + self._settings.acknowledge_timeout_seconds
                if not working and not owing:
                    break
                if working and now > own_deadline:
                    for epoch in working:
                        epoch.give_up()
                elif answers_deadline is not None and now > answers_deadline:
                    for seat in owing:
                        self._fence(seat, "unacknowledged")
                else:
                    self._changed.wait(TICK_SECONDS)
            for epoch in epochs:
                if epoch.failed:
                    log.warning("a weight group failed", epoch=epoch.number, phase=phase, reasons=epoch.reasons())
                    self._exporter.add(names.WEIGHT_FAILURES, reason=phase)
                    self._no_room = self._no_room or epoch.no_room
            if any(epoch.failed for epoch in epochs):
                self._changed.wait(TICK_SECONDS)  # the next attempt is not made in a hot loop

    # Faults

    def _look_for_faults(self, epochs: Sequence[Epoch] = ()) -> None:
        """Fence whoever is silent, disconnected, hung or keeps failing. Called with the lock held."""
        now = time.monotonic()
        if now - self._looked_at > self._settings.heartbeat_timeout_seconds / 2:
            for seat in self._roster:  # this process slept: what it did not hear proves nothing
                seat.heard_at = seat.stepped_at = now
        self._looked_at = now
        suspects = {seat for epoch in epochs if epoch.failed for seat in epoch.unanswered()}
        for seat in self._roster:
            fault = seat.fault(now, self._settings.heartbeat_timeout_seconds, self._suspicion_seconds, seat in suspects)
            if fault is not None:
                self._fence(seat, fault)
        members = [seat.member(self._staging.newest()) for seat in self._roster]
        self._exporter.set(names.GENERATORS, sum(member.joined for member in members), state="joined")
        self._exporter.set(names.GENERATORS, sum(member.ready for member in members), state="ready")

    def _fence(self, seat: Seat, fault: str) -> None:
        self._roster.fence(seat, fault)
        self._removals.add(seat.name, fault)
        self._exporter.add(names.GENERATORS_FENCED, reason=fault)
        log.warning("a generator was fenced", generator=seat.name, reason=fault)
        self._notify()

    def _drop_epoch(self) -> None:
        if self._epoch is not None:
            epoch, self._epoch = self._epoch, None
            epoch.drop(self._slots)

    def _notify(self) -> None:
        """Wake the control thread, and whoever waits for acknowledgements."""
        with self._changed:
            self._news = True
            self._changed.notify_all()
