"""One epoch: some generators and the lanes over which every trainer rank sends to them, fixed for
its life.

    Epoch(...)  seats get Join, every rank opens its lane  -> over when all have answered Joined
    broadcast   seats get Publish, every rank sends        -> over when all have answered
                Acknowledge
    dropped     the lanes are closed; a half sent version is lost

The publishing group of all members and the private group of a joiner are both epochs.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

import torch

from rollcast.config.connections import Weights
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.weights.plan.manifest import Manifest, manifest_to_proto
from rollcast.weights.sender.lanes import LaneOrder, Lanes, no_room_to_send, send_slot
from rollcast.weights.sender.roster import Roster, Seat
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.errors import NoRoomError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.process_group import Backend, GroupAddress, RendezvousStore
from rollcast.wire import weights_pb2


class Epoch:
    """Made and used by the publisher's control thread, which holds the roster's lock wherever seats
    are touched.
    """

    def __init__(
        self,
        number: int,
        seats: Sequence[Seat],
        *,
        device: torch.device,
        backend: Backend,
        host: str,
        store: RendezvousStore,
        settings: Weights,
        lanes: Lanes,
    ) -> None:
        """Ask every seat to join. host: as generators and other ranks reach `store`."""
        self.number = number
        self.seats = tuple(seats)
        world_size = 1 + sum(seat.num_workers for seat in seats)
        join = weights_pb2.Join(
            epoch=number,
            backend=backend,
            store_host=host,
            store_port=store.port,
            store_prefix=store.prefix,
            # Rank 0 of every lane is the trainer rank that sends; a generator's workers have
            # consecutive ranks.
            rank=1,
            world_size=world_size,
            timeout_seconds=settings.bucket_timeout_seconds,
            opening_timeout_seconds=settings.opening_timeout_seconds,
            lanes=lanes.count,
        )
        for seat in seats:
            seat.epoch = number
            # From now on an answer for an earlier group is stale.
            seat.answer = None
            # A copy of the message is sent.
            seat.send(weights_pb2.FromTrainer(join=join))
            join.rank += seat.num_workers
        address = GroupAddress.from_join(join, lane=0, rank=0, backend=backend)
        lanes.order(LaneOrder(number, address=address))
        self._lanes = lanes
        # Rank 0 runs on the store's own machine, where `host` may not be reachable.
        self.worker = GroupWorker(replace(address, store_host=store.host), device)
        self.work: Future[None] = self.worker.opened
        """Rank 0's own part of the current join or broadcast."""
        self._given_up = ""  # why; empty = it was not

    def broadcast(self, slots: StagingSlots, slot: int, manifest: Manifest) -> None:
        """Ask every seat to receive a version, and send it."""
        publish = weights_pb2.Publish(epoch=self.number, manifest=manifest_to_proto(manifest))
        for seat in self.seats:
            seat.answer = None
            seat.send(weights_pb2.FromTrainer(publish=publish))
        self._lanes.order(LaneOrder(self.number, slot=slot, version=manifest.version))
        self.work = self.worker.submit(partial(send_slot, slots, slot, manifest.version))

    def drop(self, slots: StagingSlots) -> None:
        """Close every lane; `slots` are rank 0's."""
        slots.let_go(self.worker)
        self._lanes.order(LaneOrder(self.number))

    def give_up(self, reason: str) -> None:
        """Stop waiting for rank 0's part: a member is lost, or it does not end and its thread is
        left behind.
        """
        self._given_up = reason
        self.worker.abandon()

    def has_lost_a_seat(self, roster: Roster) -> bool:
        return any(seat not in roster for seat in self.seats)

    def give_up_if_lost(self, roster: Roster) -> None:
        """Stop opening a group that has lost a member: it will not come."""
        if not self.failed and self.has_lost_a_seat(roster):
            self.give_up("a member was lost while it opened")

    @property
    def working(self) -> bool:
        """Whether rank 0's own part is still running."""
        return not self._given_up and not self.work.done()

    @property
    def failed(self) -> bool:
        """Whether rank 0 or a seat has reported that this group is broken."""
        broken = bool(self._given_up) or (self.work.done() and self.work.exception() is not None)
        return broken or any(
            seat.answer is not None and not seat.answer.good for seat in self.seats
        )

    @property
    def no_room(self) -> OutOfMemory | None:
        """The error if rank 0's own part ran out of memory: another epoch would fail in the same
        way.
        """
        error = self.work.exception() if self.work.done() else None
        return no_room_to_send(error) if isinstance(error, NoRoomError) else None

    def unanswered_seats(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.answer is None]

    def reasons(self) -> list[str]:
        """Why the group failed, as reported by rank 0 and the seats."""
        reasons = []
        if self._given_up:
            reasons.append(f"trainer: {self._given_up}")
        elif self.work.done() and self.work.exception() is not None:
            reasons.append(f"trainer: {self.work.exception()}")
        answers = [(seat.name, seat.answer) for seat in self.seats]
        reasons += [
            f"{name}: {answer.reason}"
            for name, answer in answers
            if answer is not None and not answer.good
        ]
        return reasons
