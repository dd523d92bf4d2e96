"""The lanes of the trainer's other ranks: each sends its own rows, so that every network card carries its part.

    rank 0, control thread                      rank r, lane thread
      open(epoch, ..)     -- LaneOrder -->        enters lane r of the epoch
      send(epoch, slot)   -- LaneOrder -->        broadcasts what its slot holds
      drop(epoch)         -- LaneOrder -->        leaves; a slot is written again only when the group is over

Nothing comes back. A lane that does not open, breaks or sends the wrong version fails at the receivers, who say so; and
a rank that dies ends the trainer, as one must that has no memory to send from.
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
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import send
from rollcast.weights.transport.process_group import GroupAddress, NoRoomError, WeightGroup
from rollcast.wire.version import PolicyVersion


@dataclass(frozen=True)
class LaneOrder:
    """One of three: an address opens, a version is sent, neither drops."""

    epoch: int
    address: GroupAddress | None = None
    slot: int = 0
    version: PolicyVersion | None = None
    base: PolicyVersion | None = None

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> LaneOrder:
        values = json.loads(data)
        address, version, base = (values.pop(name) for name in ("address", "version", "base"))
        return cls(
            **values,
            address=GroupAddress(**address) if address else None,
            version=PolicyVersion(*version) if version else None,
            base=PolicyVersion(*base) if base else None,
        )


@dataclass(frozen=True)
class Lanes:
    """Rank 0's end. `tell`: hands an order to every other rank, in order, and does not wait."""

    count: int = 1
    """Of the trainer's ranks."""
    tell: Callable[[bytes], None] = lambda order: None

    def open(self, address: GroupAddress) -> None:
        """`address`: of lane 0."""
        self.tell(LaneOrder(address.epoch, address=address).encode())

    def send(self, epoch: int, slot: int, version: PolicyVersion, base: PolicyVersion | None) -> None:
        self.tell(LaneOrder(epoch, slot=slot, version=version, base=base).encode())

    def drop(self, epoch: int) -> None:
        self.tell(LaneOrder(epoch).encode())


ONE_LANE = Lanes()
log = get_logger()


class LaneSender:
    """Another rank's end: obeys `orders` on a thread of its own until they end."""

    def __init__(self, rank: int, slots: StagingSlots, device: torch.device, orders: Iterator[bytes]) -> None:
        self._rank = rank
        self._slots = slots
        self._device = device
        self._orders = orders
        self._workers: dict[int, GroupWorker] = {}
        self._no_room: OutOfMemory | None = None
        self._thread = threading.Thread(target=self._obey, name="weight-lane", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raises OutOfMemory where this rank had no room to send a version."""
        if self._no_room is not None:
            raise self._no_room

    def stop(self, seconds: float) -> None:
        """Wait for the end of the orders, leave the groups."""
        self._thread.join(seconds)
        for worker in list(self._workers.values()):
            worker.abandon()

    def _obey(self) -> None:
        for data in self._orders:
            try:
                self._carry_out(LaneOrder.decode(data))
            except Exception:  # the next epoch may go well, and without this thread none would
                log.exception("an order to a lane failed", lane=self._rank)

    def _carry_out(self, order: LaneOrder) -> None:
        if order.address is not None:
            worker = GroupWorker(replace(order.address, lane=self._rank), self._device)
            self._workers[order.epoch] = worker
            worker.opened.add_done_callback(partial(self._note, order.epoch))
        elif order.version is not None:
            job = partial(send_slot, self._slots, order.slot, order.version, order.base)
            self._workers[order.epoch].submit(job).add_done_callback(partial(self._note, order.epoch))
        elif (dropped := self._workers.pop(order.epoch, None)) is not None:
            self._slots.let_go(dropped)

    def _note(self, epoch: int, done: Future[None]) -> None:
        if (error := done.exception()) is not None and epoch in self._workers:
            log.warning("a lane failed", lane=self._rank, epoch=epoch, reason=str(error))
            if isinstance(error, NoRoomError):
                self._no_room = no_room_to_send(error)


def no_room_to_send(error: NoRoomError) -> OutOfMemory:
    """The end of a trainer rank, as a sentence."""
    what = "what of a version is on its way to the generators"
    return out_of_memory(what, "lower trainer.tokens_per_micro_batch, or give the trainer more ranks", str(error))


def send_slot(
    slots: StagingSlots, slot: int, version: PolicyVersion, base: PolicyVersion | None, group: WeightGroup
) -> None:
    """Send what a slot holds, as changes since `base` where one is given. Raises GroupError."""
    send(group, slots[slot], version, None if base is None else slots.changes(slot, base))
