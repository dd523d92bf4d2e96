"""Publishing of weights at trainer rank 0: the only place that decides membership, epochs and
broadcasts.

    main thread      stage() -> all ranks fill -> publish(slot, version)
                     never waits for a generator
    control thread   the only one that changes members, epochs and `current`; each turn, in this
                     order:
                       1. a published version waits      -> it becomes `current` (an older waiting
                                                            one is skipped)
                       2. leavers                        -> confirm
                       3. members != those of the epoch  -> make the next epoch
                       4. a member is behind `current`   -> broadcast, await acknowledgements; on
                                                            failure drop the epoch: the next turn
                                                            makes a new one and sends again
                       5. joiners waited long enough     -> `current` through private groups, then
                                                            they are members
    group workers    one thread for each group, the only ones inside a collective
    stream threads   two for each generator: they record its messages and wake the control thread
    removal thread   calls `on_removed`, which may wait for Redis

A turn depends only on the state, so a publish may be interrupted anywhere: members that are behind
are served again. A frozen generator fails the broadcast after one bucket's deadline, is silent by
then, and is fenced. A frozen trainer finds all generators silent when it wakes up, and forgives
them instead.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial

import torch

from rollcast.config.connections import Rpc, Weights
from rollcast.connections.grpc import start_server
from rollcast.telemetry import wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.weights.plan.manifest import (
    Manifest,
    TensorSpec,
    apply_seconds,
    plan_buckets,
    total_bytes,
)
from rollcast.weights.sender.epoch import Epoch
from rollcast.weights.sender.lanes import ONE_LANE, Lanes
from rollcast.weights.sender.membership import Membership, Removals
from rollcast.weights.sender.rank_store import RankStore
from rollcast.weights.sender.roster import (
    Member,
    Outgoing,
    Roster,
    Seat,
    SeatAnswer,
    welcome_message,
)
from rollcast.weights.sender.rounds import FAULT_CHECK_SECONDS, EpochRounds
from rollcast.weights.sender.sharing import Sharing
from rollcast.weights.sender.staging import Staging, StagingSlots
from rollcast.weights.sender.store_rounds import StoreRounds
from rollcast.weights.sender.store_writer import StoreWriter
from rollcast.weights.sender.sync_server import WeightSyncService
from rollcast.weights.sender.wake import Wake
from rollcast.weights.transport.choice import choose_transport
from rollcast.weights.transport.lane_transfer import pieces_at_once
from rollcast.weights.transport.process_group import RendezvousStore
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion
from rollcast.wire.weights_pb2_grpc import add_WeightSyncServicer_to_server

log = get_logger()


@dataclass(eq=False)
class Publisher:
    """See the module. Every method except `stage` and `publish` is thread-safe."""

    _: KW_ONLY
    weights: Weights
    rpc: Rpc
    incarnation: int
    history: Sequence[tuple[int, int]]
    """Surviving (incarnation, last_step) of older incarnations."""
    lm_head: str
    specs: Sequence[TensorSpec]
    device: torch.device
    """The device that the groups send from."""
    exporter: Exporter
    on_removed: Callable[[str, str], None]
    """See `Removals`; called when a generator was fenced or has left."""
    slots: StagingSlots
    """The slots of this rank, filled by the learner."""
    lanes: Lanes = ONE_LANE
    """The lanes of all ranks."""
    router_replay: bool = False
    shares_gpu: bool = False
    """Whether a generator uses `device` too."""
    secret_place: str | None = None
    """The place of the secret, as for `start_server`."""
    rank_store: RankStore | None = None
    """What this rank writes to the store; None = versions go through process groups."""

    def __post_init__(self) -> None:
        """Raises UserError: weights.transport cannot work here."""
        self._choice = choose_transport(self.device, self.weights, shares_gpu=self.shares_gpu)
        self._buckets = plan_buckets(self.specs, self.weights.bucket_bytes)

        self._staging = Staging()
        self._wake = Wake()
        self._changed = self._wake.changed  # guards everything below
        self._sharing = Sharing(self._changed)
        self._roster = Roster(
            self.incarnation,
            self.lm_head,
            self.history,
            router_replay=self.router_replay,
            uses_store=self.rank_store is not None,
        )
        self._removals = Removals(self.on_removed)
        self._membership = Membership(self._roster, self._removals, self.weights, self.exporter)
        self._current: Manifest | None = None
        self._epoch: Epoch | None = None
        self._rounds = EpochRounds(
            settings=self.weights,
            make_epoch=partial(
                Epoch,
                device=self.device,
                backend="gloo" if self._choice.transport == "store" else self._choice.transport,
                host=self.rpc.host,
                settings=self.weights,
                lanes=self.lanes,
            ),
            buckets=self._buckets,
            num_lanes=self.lanes.count,
            slots=self.slots,
            staging=self._staging,
            membership=self._membership,
            exporter=self.exporter,
            wake=self._wake,
        )
        self._store = None if self.rank_store is None else self._make_store(self.rank_store)

    def _make_store(self, rank_store: RankStore) -> StoreRounds:
        parts = (rank_store, self._staging, self.lanes, self._wake, self.exporter)
        version_bytes = total_bytes(self._buckets)
        writer = StoreWriter(self.weights.store, *parts, version_bytes)
        fail_seconds = apply_seconds(self.weights.acknowledge_timeout_seconds, version_bytes)
        content = (self._buckets, self.lm_head)
        return StoreRounds(self._membership, writer, *content, self.exporter, fail_seconds)

    def start(self) -> int:
        """Start to serve; returns the gRPC port. Raises UserError if it is taken."""
        self._roster.sightings.open(time.monotonic())
        if self._store is None:
            self._rendezvous = RendezvousStore(self.rpc.bind)
        else:
            self._store.writer.start()
        register = partial(
            add_WeightSyncServicer_to_server, WeightSyncService(self, self._roster.sightings)
        )
        self._server, port = start_server(
            self.rpc, register, setting="rpc.port", secret_place=self.secret_place
        )
        self._thread = threading.Thread(target=self._control, name="weight-control", daemon=True)
        self._thread.start()
        self._removals.start()
        log.info(
            "weight sync listens",
            port=port,
            megabytes=round(total_bytes(self._buckets) / 1e6, 1),
            transport=self._choice.transport,
            because=self._choice.reason,
        )
        return port

    def stop(self, timeout_seconds: float) -> None:
        """Stop serving. Generators keep their weights and wait for the next incarnation."""
        with self._changed:
            self._wake.is_stopping = True
            self._wake.notify()
        self._server.stop(grace=0).wait(timeout_seconds)
        self._thread.join(timeout_seconds)
        if self._store is not None:
            self._store.writer.stop(timeout_seconds)
        self._removals.stop(timeout_seconds)
        self._drop_epoch()
        self.slots.wait_for_readers(timeout_seconds)

    def stage(self) -> int:
        """The slot that is not being broadcast, to be filled by all ranks; see `Staging.stage`."""
        return self._staging.stage()

    def publish(self, slot: int, version: PolicyVersion) -> None:
        """Hand over a slot that every rank has filled; returns immediately.

        Generators join after the first call.
        """
        assert version.incarnation == self.incarnation, version
        self._staging.offer(slot, version)
        self._wake.notify()

    def members(self) -> list[Member]:
        """Every generator that has a place, joined or not yet.

        Raises OutOfMemory if no version can be sent.
        """
        newest = self._staging.newest()
        with self._changed:
            if self._rounds.no_room is not None:
                raise self._rounds.no_room
            return [seat.member(newest) for seat in self._roster]

    def lowest_step(self) -> int | None:
        """Oldest step that any generator may sample with, reconnecting ones included; None if none
        has weights.
        """
        with self._changed:
            return self._roster.lowest_step()

    def hand_over(self, generator: str, sequences: Sequence[int]) -> bool:
        """Ask for these tasks back, unfinished; False = not asked, because that generator has no
        place or no stream.
        """
        with self._changed:
            return self._roster.hand_over(generator, sequences)

    def wait_acknowledged(self, step: int, timeout_seconds: float) -> bool:
        """Wait until `lowest_step` is >= step; True immediately if no generator has weights."""
        with self._changed:
            return self._changed.wait_for(lambda: self._all_have(step), timeout_seconds)

    def kept_away(self, step: int, timeout_seconds: float) -> AbstractContextManager[None]:
        """Nothing is sent in this context.

        Waits until `step` was acknowledged and no generator is due to join. What generators pull
        from a store does not pass through this process's groups, and is not waited for.
        """
        if self._store is not None:
            return nullcontext()
        return self._sharing.pause(
            lambda: not self._all_have(step) or bool(self._due_joiners()), timeout_seconds
        )

    def _all_have(self, step: int) -> bool:
        lowest = self._roster.lowest_step()
        return lowest is None or lowest >= step

    # Messages of the streams (SyncEvents)

    def handle_announcement(
        self, announce: weights_pb2.Announce, outgoing: Outgoing
    ) -> Seat | None:
        with self._changed:
            if isinstance(seat := self._roster.admit(announce, outgoing, time.monotonic()), Seat):
                seat.send(
                    weights_pb2.FromTrainer(welcome=welcome_message(self.incarnation, self.history))
                )
                log.info(
                    "a generator announced itself", generator=seat.name, holds=str(seat.version)
                )
                self._wake.notify()
                return seat
            if seat is not None:
                log.warning(
                    "a generator was refused", generator=announce.generator, reason=seat.reason
                )
                outgoing.put(seat)
            return None

    def handle_message(self, seat: Seat, message: weights_pb2.FromGenerator) -> None:
        with self._changed:
            if seat not in self._roster:
                return  # fenced, and informed of it
            seat.heard_at = time.monotonic()
            match message.WhichOneof("kind"):
                case "heartbeat":
                    seat.note_heartbeat(message.heartbeat, seat.heard_at)
                    return
                case "joined":
                    seat.respond(message.joined.epoch, SeatAnswer(good=True))
                case "acknowledge" | "failed" if self._store is not None:
                    self._store.note_answer(seat, message)
                case "acknowledge":
                    version = PolicyVersion.from_proto(message.acknowledge.version)
                    # An older version does not count: the generator gets the current one anyway.
                    if self._current is not None and version == self._current.version:
                        seat.acknowledge(message.acknowledge.epoch, version)
                case "failed":
                    seat.respond(
                        message.failed.epoch,
                        SeatAnswer(good=False, reason=message.failed.reason[:500]),
                    )
                case "leaving":
                    seat.leaving = True
            self._wake.notify()

    def handle_disconnect(self, seat: Seat) -> None:
        with self._changed:
            seat.connected = False
            self._wake.notify()

    # The control thread

    def _control(self) -> None:
        while not self._wake.is_stopping:
            with self._changed:
                self._wake.has_changed = False
            try:
                idle = not self._turn()
            except Exception:
                # Without this thread the run would stop silently; a turn starts from the state, so
                # it can be repeated.
                log.exception("a turn of weight sync failed")
                self.exporter.add(wire_metrics.WEIGHT_FAILURES, reason="control")
                idle = True
            with self._changed:
                if idle and not self._wake.has_changed:
                    self._changed.wait(FAULT_CHECK_SECONDS)

    def _turn(self) -> bool:
        """Do everything that is due; False = nothing was due."""
        if self._store is not None:
            with self._changed:
                self._rounds.look_for_faults()
                has_leavers = self._membership.confirm_leavers()
                return self._store.turn() or has_leavers
        version = self._staging.take()
        if version is not None:
            self._current = Manifest(version, self._buckets, self.lm_head)
        with self._changed:
            self._rounds.look_for_faults()
            has_leavers = self._membership.confirm_leavers()
            joined = self._roster.joined_seats()
            joiners = self._due_joiners()
            # Groups are fixed for their life: another membership needs another epoch.
            if self._epoch is not None and set(self._epoch.seats) != set(joined):
                self._drop_epoch()
        if self._current is None:
            return has_leavers
        with self._sharing.broadcasting() as may_begin:
            if not may_begin:
                return has_leavers
            # A member is behind after a publish, and again if its acknowledgement was lost with the
            # epoch.
            is_any_behind = any(seat.version != self._current.version for seat in joined)
            if joined and self._epoch is None:
                self._epoch = next(iter(self._rounds.open([joined], self._rendezvous)), None)
            if is_any_behind and self._epoch is not None:
                self._rounds.send([self._epoch], self._current, "publish")
                if self._epoch.failed:
                    self._drop_epoch()
                else:
                    self.exporter.observe(
                        wire_metrics.WEIGHT_SYNC_SECONDS,
                        time.monotonic() - self._staging.current_offered_at,
                    )
            if joiners:
                self._admit(joiners, self._current)
            return has_leavers or is_any_behind or bool(joiners)

    def _due_joiners(self) -> list[Seat]:
        return self._roster.due_joiners(time.monotonic() - self.weights.coalesce_seconds)

    def _admit(self, joiners: list[Seat], current: Manifest) -> None:
        """Bring joiners to `current`, each through a private group, several at a time; then they
        are members.
        """
        # One whose groups broke must show that it can receive, whatever it holds.
        late_joiners = [
            seat for seat in joiners if seat.version != current.version or seat.failures
        ]
        # Each group has pieces on every rank's device, and together they must not exceed
        # PIECE_BYTES.
        at_once = pieces_at_once(self.lanes.count)
        for first in range(0, len(late_joiners), at_once):
            # The others join after the update that waits.
            if first and self._sharing.is_held:
                break
            still_joining = self._roster.still_joining(late_joiners[first : first + at_once])
            groups = self._rounds.open([[seat] for seat in still_joining], self._rendezvous)
            self._rounds.send(groups, current, "catch_up")
            for epoch in groups:
                epoch.drop(self.slots)
        with self._changed:
            for seat in joiners:
                seat.joined = (
                    seat in self._roster and seat.version == current.version and not seat.failures
                )
            self._wake.notify()

    def _drop_epoch(self) -> None:
        if self._epoch is not None:
            self._epoch.drop(self.slots)
            self._epoch = None
