"""Groups that fail as NCCL's do: who is lost, frozen or never comes costs the others neither
threads nor memory.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

import pytest
import torch

from rollcast.weights.plan.manifest import Manifest, TensorSpec, manifest_to_proto, plan_buckets
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver import receiver as receiver_module
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.weight_engine import FAILED, JOINED, STAGED
from rollcast.weights.sender.lanes import send_slot
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport import lane_transfer
from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.process_group import PIECES_IN_FLIGHT, GroupAddress, RendezvousStore
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion
from testkit.weights.generator_process import digest
from testkit.weights.trainer_end import copy_rows, fill, wait_until
from tests.weights import like_nccl
from tests.weights.like_nccl import Network

CPU = torch.device("cpu")
VERSION = PolicyVersion(1, 1)
BUCKETS = plan_buckets([TensorSpec(f"layer.{i}", "float32", (48, 240)) for i in range(6)], 1 << 16)
PATIENCE_SECONDS = 30.0
PIECE_SECONDS = 20.0
"""Deadline of a piece: far above what is waited for here, so that no deadline explains a quick
end."""


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setattr(receiver_module, "backend_for", lambda device: "nccl")
    network = like_nccl.install(monkeypatch)
    yield network
    network.free()


class Members:
    """The lanes of a trainer and some receivers, all in this process."""

    def __init__(self, lanes: int, receivers: int, opening_seconds: float = 20.0) -> None:
        self.store = RendezvousStore("127.0.0.1")
        self.lanes = lanes
        self.slots = [StagingSlots(shard_buckets(BUCKETS, lane, lanes)) for lane in range(lanes)]
        self.receivers = [Receiver(device=CPU) for _ in range(receivers)]
        self.opening_seconds = opening_seconds
        self.epoch = 0
        self.senders: list[GroupWorker] = []

    def open(self, absent: int = 0) -> None:
        """Start to open the next epoch; the last `absent` receivers are members that never come."""
        self.epoch += 1
        world_size = 1 + len(self.receivers)
        self.senders = [
            GroupWorker(
                GroupAddress(
                    epoch=self.epoch,
                    lane=lane,
                    num_lanes=self.lanes,
                    backend="nccl",
                    store_host=self.store.host,
                    store_port=self.store.port,
                    store_prefix=self.store.prefix,
                    rank=0,
                    world_size=world_size,
                    timeout_seconds=PIECE_SECONDS,
                    opening_seconds=self.opening_seconds,
                ),
                CPU,
            )
            for lane in range(self.lanes)
        ]
        for rank, receiver in enumerate(self.receivers[: len(self.receivers) - absent], 1):
            receiver.join(self.join_message(rank, world_size))

    def join_message(self, rank: int, world_size: int) -> bytes:
        return weights_pb2.Join(
            epoch=self.epoch,
            backend="nccl",
            store_host=self.store.host,
            store_port=self.store.port,
            store_prefix=self.store.prefix,
            rank=rank,
            world_size=world_size,
            timeout_seconds=PIECE_SECONDS,
            lanes=self.lanes,
            opening_timeout_seconds=self.opening_seconds,
        ).SerializeToString()

    def opened(self) -> Members:
        self.open()
        for sender in self.senders:
            sender.opened.result(PATIENCE_SECONDS)
        wait_until(lambda: all(receiver.poll().status == JOINED for receiver in self.receivers))
        return self

    def stage(self, seed: int) -> str:
        """Fill the slots with one version; returns its digest."""
        whole = Snapshot.on(CPU, BUCKETS)
        fill(whole, seed)
        for lane, slots in enumerate(self.slots):
            slots.fill(0, VERSION, 0.0, partial(copy_rows, dict(whole.views()), lane, self.lanes))
        return digest(whole.views())

    def send(self) -> list[Any]:
        return [
            sender.submit(partial(send_slot, slots, 0, VERSION))
            for sender, slots in zip(self.senders, self.slots, strict=True)
        ]

    def receive(self, receivers: list[Receiver]) -> None:
        manifest = manifest_to_proto(Manifest(VERSION, BUCKETS, "fp32"))
        message = weights_pb2.Publish(epoch=self.epoch, manifest=manifest).SerializeToString()
        for receiver in receivers:
            receiver.receive(message)


def group_threads() -> int:
    return sum(thread.name.startswith("weight-group") for thread in threading.enumerate())


def fill_thrice(slots: StagingSlots) -> list[Snapshot]:
    """The memory that each of three versions was staged in."""
    filled = []
    for _ in range(3):
        slots.fill(0, VERSION, 0.0, lambda snapshot: None)
        filled.append(slots[0])
    return filled


def reason(failed: Future[None]) -> str:
    """Why it failed."""
    with pytest.raises(GroupError) as error:
        failed.result(PATIENCE_SECONDS)
    return str(error.value)


def take(receiver: Receiver) -> str:
    """Wait for the version and apply it; returns its digest."""
    wait_until(lambda: receiver.poll().status == STAGED)
    got: dict[str, torch.Tensor] = {}
    receiver.apply(lambda views: got.update((name, tensor.clone()) for name, tensor in views))
    return digest(got.items())


@pytest.mark.parametrize("lanes", [1, 3, 12])
def test_versions_arrive_whole_with_several_pieces_on_their_way(
    network: Network, monkeypatch: pytest.MonkeyPatch, lanes: int
) -> None:
    monkeypatch.setattr(lane_transfer, "piece_bytes", lambda num_lanes: 4096)
    members = Members(lanes, receivers=2).opened()
    expected = members.stage(seed=lanes)
    members.receive(members.receivers)
    for sent in members.send():
        sent.result(PATIENCE_SECONDS)
    for receiver in members.receivers:
        assert take(receiver) == expected
    assert network.most_in_flight == PIECES_IN_FLIGHT > 1


def test_a_member_that_is_lost_ends_no_other_process(network: Network) -> None:
    """The error is found by polling; nobody's watchdog finds it first."""
    members = Members(lanes=2, receivers=2).opened()
    members.stage(seed=1)
    members.receive(members.receivers[:1])  # the other one has died before its first piece
    sent = members.send()
    wait_until(network.all_travel)
    network.lose(rank=2)
    for future in sent:
        # Found by polling, or at the next piece.
        assert re.search("remote process exited|communicator was aborted", reason(future))
    wait_until(lambda: members.receivers[0].poll().status == FAILED)
    time.sleep(3 * like_nccl.WATCHDOG_SECONDS)
    assert network.ended_by_watchdog == []
    assert "TORCH_NCCL_BLOCKING_WAIT" not in os.environ, (
        "the trainer's own groups keep their watchdog"
    )


def test_a_member_that_never_comes_holds_neither_threads_nor_memory(network: Network) -> None:
    """It disappears between Join and Joined."""
    threads = group_threads()
    members = Members(lanes=3, receivers=2)
    members.open(absent=1)
    time.sleep(0.3)  # all others are there, and wait
    assert not any(sender.opened.done() for sender in members.senders)
    for sender, slots in zip(members.senders, members.slots, strict=True):
        slots.let_go(sender)
        before = slots[0]
        assert fill_thrice(slots) == [before] * 3, "nobody reads it: it need not be made again"
    members.receivers[0].abandon()
    wait([sender.opened for sender in members.senders], PATIENCE_SECONDS)
    wait_until(lambda: group_threads() <= threads)


def test_a_member_that_freezes_while_it_connects_costs_one_thread_for_a_while(
    network: Network,
) -> None:
    """It was there, but does not answer NCCL: the call itself has to end."""
    threads = group_threads()
    members = Members(lanes=1, receivers=1)
    members.open(absent=1)
    members.store._store.set(f"{members.store.prefix}/1/0/here/1", "here")
    sender = members.senders[0]
    wait_until(lambda: network.opening[0] == 1)
    members.slots[0].let_go(sender)
    members.slots[0].fill(0, VERSION, 0.0, lambda snapshot: None)
    assert members.slots[0].wait_for_readers(0.0) == 0
    assert "abandoned" in reason(sender.opened)
    wait_until(lambda: group_threads() <= threads)


def test_a_group_that_does_not_open_ends_at_its_own_deadline(network: Network) -> None:
    """Which is not that of a piece."""
    members = Members(lanes=1, receivers=2, opening_seconds=0.5)
    members.open(absent=1)
    assert "rank 2 did not come" in reason(members.senders[0].opened)
    wait_until(lambda: members.receivers[0].poll().status == FAILED)


def test_the_lanes_of_an_epoch_open_one_after_the_other(network: Network) -> None:
    """Of NCCL's communicators one receiver opens one at a time, and each in the order
    of the lanes.
    """
    Members(lanes=6, receivers=2).opened()
    assert network.most_opening[1] == network.most_opening[2] == 1


def test_an_abort_holds_no_thread_but_that_of_its_lane(network: Network) -> None:
    """Neither the engine's own thread, which joins the next epoch, nor the publisher's."""
    threads = group_threads()
    members = Members(lanes=4, receivers=1).opened()
    old = members.senders
    members.open()  # the receiver leaves the lanes of the first epoch by itself
    for sender, slots in zip(old, members.slots, strict=True):
        slots.let_go(sender)
    for sender in members.senders:
        sender.opened.result(PATIENCE_SECONDS)
    wait_until(lambda: len(network.aborted_on) == 8)
    assert all(name.startswith("weight-group-1") for name in network.aborted_on)
    members.receivers[0].abandon()
    for sender in members.senders:
        sender.abandon()
    wait_until(lambda: group_threads() <= threads)


def test_memory_that_an_aborted_lane_may_still_write_is_not_used_again_before(
    network: Network,
) -> None:
    members = Members(lanes=1, receivers=1).opened()
    members.stage(seed=1)
    members.send()  # and nobody receives it
    sender = members.senders[0]
    wait_until(lambda: network.most_in_flight == PIECES_IN_FLIGHT)
    members.slots[0].let_go(sender)
    assert not sender.wait_released()
    assert members.slots[0].wait_for_readers(PATIENCE_SECONDS) == 0
    assert network.aborted_on


def test_a_lane_that_never_lets_go_costs_new_memory_once(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = Members(lanes=1, receivers=1).opened()
    stuck = threading.Event()
    members.senders[0].submit(lambda group: stuck.wait(PATIENCE_SECONDS))
    slots = members.slots[0]
    slots.let_go(members.senders[0])
    made = fill_thrice(slots)
    assert made == [made[0]] * 3
    assert slots.wait_for_readers(0.0) == 1, "the other slot"
    stuck.set()


def test_a_group_that_many_threads_abandon_is_aborted_once(network: Network) -> None:
    members = Members(lanes=1, receivers=1).opened()
    sender = members.senders[0]
    enders = [threading.Thread(target=sender.abandon) for _ in range(8)]
    for ender in enders:
        ender.start()
    for ender in enders:
        ender.join(PATIENCE_SECONDS)
    assert sender.wait_released(PATIENCE_SECONDS)
    assert len([name for name in network.aborted_on if name.startswith("weight-group-1.0")]) == 1
