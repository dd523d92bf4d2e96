"""One epoch: a group of trainer rank 0 and some generators, fixed for its life.

    Epoch(...)  seats get Join, rank 0 opens its side     -> settled when all have answered Joined
    broadcast   seats get Publish, rank 0 sends the bytes -> settled when all have answered Acknowledge
    abandon     the group is dropped; a version half sent in it is worthless

The publishing group of all members and the private group of a joiner are both epochs.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import torch

from rollcast.weights.group_worker import GroupWorker
from rollcast.weights.manifest import Manifest, manifest_to_proto
from rollcast.weights.process_group import GroupAddress, RendezvousStore, backend_for
from rollcast.weights.roster import Seat
from rollcast.weights.snapshot import Snapshot
from rollcast.wire import weights_pb2


class Epoch:
    """Made and used by the publisher's control thread, which holds the roster's lock wherever seats are touched."""

    def __init__(
        self,
        number: int,
        seats: Sequence[Seat],
        *,
        device: torch.device,
        host: str,
        store: RendezvousStore,
        timeout_seconds: float,
    ) -> None:
        """Ask every seat to join. host: as generators reach `store`."""
        self.number = number
        self.seats = tuple(seats)
        world_size = 1 + sum(seat.num_workers for seat in seats)
        backend = backend_for(device)
        rank = 1
        for seat in seats:
            seat.epoch, seat.answer = number, None
            join = weights_pb2.Join(
                epoch=number,
                backend=backend,
                store_host=host,
                store_port=store.port,
                store_prefix=store.prefix,
                rank=rank,
                world_size=world_size,
                timeout_seconds=timeout_seconds,
            )
            seat.send(weights_pb2.FromTrainer(join=join))
            rank += seat.num_workers
        self.worker = GroupWorker(
            GroupAddress(number, backend, store.host, store.port, store.prefix, 0, world_size, timeout_seconds), device
        )
        self.work: Future[None] = self.worker.opened
        """Rank 0's own part of what is going on."""
        self._given_up = False

    def broadcast(self, snapshot: Snapshot, manifest: Manifest) -> None:
        """Ask every seat to receive, and send."""
        publish = weights_pb2.Publish(epoch=self.number, manifest=manifest_to_proto(manifest))
        for seat in self.seats:
            seat.answer = None
            seat.send(weights_pb2.FromTrainer(publish=publish))
        self.work = self.worker.submit(lambda group: group.broadcast(snapshot.buffers))

    def give_up(self) -> None:
        """Rank 0's part does not end: leave its thread behind."""
        self._given_up = True
        self.worker.abandon()

    @property
    def working(self) -> bool:
        """Whether rank 0's own part goes on."""
        return not self._given_up and not self.work.done()

    @property
    def failed(self) -> bool:
        """Whether rank 0 or a seat has already reported that this group is broken."""
        broken = self._given_up or (self.work.done() and self.work.exception() is not None)
        return broken or any(seat.answer is not None and not seat.answer.good for seat in self.seats)

    def unanswered(self) -> list[Seat]:
        """Seats that owe an answer."""
        return [seat for seat in self.seats if seat.answer is None]

    def reasons(self) -> list[str]:
        """Why it failed, as reported."""
        own = [f"trainer: {self.work.exception() if self.work.done() else 'hangs'}"]
        if not self._given_up and (not self.work.done() or self.work.exception() is None):
            own = []
        answers = [(seat.name, seat.answer) for seat in self.seats]
        return own + [f"{name}: {answer.reason}" for name, answer in answers if answer is not None and not answer.good]
