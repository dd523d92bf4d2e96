"""The lanes of the trainer's other ranks: each sends its own rows, so that every network card
carries its share.

    rank 0, control thread                      rank r, lane thread
      LaneOrder(epoch, address=..)     -->        enters lane r of the epoch
      LaneOrder(epoch, slot, version)  -->        broadcasts what its slot holds
      LaneOrder(epoch)                 -->        leaves; a slot is written again only when the
                                                  group is over
      LaneOrder(0, slot, version, kind)  -->      writes an object to the store (`rank_store`)
                                       <--        its WrittenObject; first a refusal if the store
                                                  takes none, and it tries again

Lanes have no answer. A lane that does not open, breaks or sends the wrong version fails at the
receivers, which report it. A rank that dies or has no memory to send from ends the trainer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from functools import partial

import torch

from rollcast.config.out_of_memory import OutOfMemory, out_of_memory
from rollcast.telemetry.logging import get_logger
from rollcast.weights.sender.rank_store import (
    ObjectKind,
    RankStore,
    refusal_key,
    reply_key,
    until_written,
)
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.errors import NoRoomError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import send
from rollcast.weights.transport.process_group import GroupAddress, WeightGroup
from rollcast.wire.version import PolicyVersion


@dataclass(frozen=True)
class LaneOrder:
    """Exactly one of: open a lane (`address`), send a version (`version`), write it to the store
    (`version` and `kind`), drop the lane (none of them).
    """

    epoch: int
    address: GroupAddress | None = None
    slot: int = 0
    version: PolicyVersion | None = None
    kind: ObjectKind | None = None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> LaneOrder:
        values = json.loads(data)
        address = values.pop("address")
        version = values.pop("version")
        return cls(
            **values,
            address=GroupAddress(**address) if address else None,
            version=PolicyVersion(*version) if version else None,
        )


@dataclass(frozen=True)
class Lanes:
    """Rank 0's end."""

    count: int = 1
    """Number of trainer ranks."""
    send_order: Callable[[bytes], None] = lambda order: None
    """Hands an order to every other rank, in sequence, without waiting."""
    take_reply: Callable[[str], bytes | None] = lambda key: None
    """Another rank's reply under this key; None = none so far."""

    def order(self, order: LaneOrder) -> None:
        """Send an order to every other rank; an `address` is that of lane 0."""
        self.send_order(order.encode())


ONE_LANE = Lanes()
log = get_logger()


class LaneSender:
    """Another rank's end: carries out `orders` on its own thread until they end."""

    def __init__(
        self,
        rank: int,
        slots: StagingSlots,
        device: torch.device,
        orders: Iterator[bytes],
        store: RankStore | None = None,
        reply: Callable[[str, bytes], None] = lambda key, body: None,
    ) -> None:
        self._rank = rank
        self._store = store
        self._reply = reply
        self._stopping = threading.Event()
        self._slots = slots
        self._device = device
        self._orders = orders
        self._workers: dict[int, GroupWorker] = {}
        self._no_room: OutOfMemory | None = None
        self._thread = threading.Thread(target=self._run, name="weight-lane", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises OutOfMemory if this rank had no memory to send a version."""
        if self._no_room is not None:
            raise self._no_room

    def stop(self, seconds: float) -> None:
        """Wait for the end of the orders, then leave the groups."""
        self._stopping.set()
        self._thread.join(seconds)
        for worker in list(self._workers.values()):
            worker.abandon()

    def _run(self) -> None:
        for data in self._orders:
            try:
                self._carry_out(LaneOrder.decode(data))
            # The thread must go on: the next epoch may succeed.
            except Exception:
                log.exception("an order to a lane failed", lane=self._rank)

    def _carry_out(self, order: LaneOrder) -> None:
        if order.address is not None:
            worker = GroupWorker(replace(order.address, lane=self._rank), self._device)
            self._workers[order.epoch] = worker
            worker.opened.add_done_callback(partial(self._note, order.epoch))
        elif order.kind is not None and order.version is not None:
            assert self._store is not None
            write = partial(self._store.write, order.kind, order.slot, order.version)
            refused = refusal_key(order.version, order.kind, self._rank)
            refuse = partial(self._reply, refused, b"")
            object_name = until_written(write, self._stopping.is_set, refuse)
            if object_name is not None:
                self._reply(reply_key(order.version, order.kind, self._rank), object_name.encode())
        elif order.version is not None:
            # A worker's jobs run in order, so the version waits until the group is open.
            job = partial(send_slot, self._slots, order.slot, order.version)
            self._workers[order.epoch].submit(job).add_done_callback(
                partial(self._note, order.epoch)
            )
        elif (dropped := self._workers.pop(order.epoch, None)) is not None:
            self._slots.let_go(dropped)

    def _note(self, epoch: int, done: Future[None]) -> None:
        # A worker that was dropped meanwhile fails too, which is no news.
        if (error := done.exception()) is not None and epoch in self._workers:
            log.warning("a lane failed", lane=self._rank, epoch=epoch, reason=str(error))
            if isinstance(error, NoRoomError):
                self._no_room = no_room_to_send(error)


def no_room_to_send(error: NoRoomError) -> OutOfMemory:
    """The error with which a trainer rank ends."""
    return out_of_memory(
        "the part of a version that is being sent to the generators",
        "lower trainer.tokens_per_micro_batch, or give the trainer more ranks",
        str(error),
    )


def send_slot(slots: StagingSlots, slot: int, version: PolicyVersion, group: WeightGroup) -> None:
    """Send the version that a slot holds. Raises GroupError."""
    send(group, slots[slot], version)
