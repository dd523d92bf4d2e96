"""The receiver refuses whatever does not fit its state, and says why in `poll`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rollcast.weights.plan.manifest import Manifest, TensorSpec, manifest_to_proto, plan_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.weight_engine import (
    FAILED,
    IDLE,
    JOINED,
    JOINING,
    RECEIVING,
    STAGED,
    ReceiveState,
    merge_states,
)
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.errors import GroupError, NoRoomError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.lane_transfer import send
from rollcast.weights.transport.process_group import GroupAddress, RendezvousStore, WeightGroup
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

CPU = torch.device("cpu")
VERSION = PolicyVersion(1, 1)
SPECS = plan_buckets(
    [TensorSpec("a", "float32", (300,)), TensorSpec("b", "bfloat16", (70, 3))], 1 << 16
)


def join_message(
    store: RendezvousStore, epoch: int, timeout_seconds: float = 5.0, **fields: Any
) -> bytes:
    fields = {
        "backend": "gloo",
        "rank": 1,
        "world_size": 2,
        "lanes": 1,
        "opening_timeout_seconds": timeout_seconds,
        **fields,
    }
    return weights_pb2.Join(
        epoch=epoch,
        store_host=store.host,
        store_port=store.port,
        store_prefix=store.prefix,
        timeout_seconds=timeout_seconds,
        **fields,
    ).SerializeToString()


def publish_message(epoch: int, snapshot: Snapshot) -> bytes:
    manifest = Manifest(VERSION, snapshot.specs, "fp32")
    return weights_pb2.Publish(
        epoch=epoch, manifest=manifest_to_proto(manifest)
    ).SerializeToString()


def random_version() -> Snapshot:
    sent = Snapshot.on(CPU, SPECS)
    for buffer in sent.buffers:
        buffer.random_(0, 256)
    sent.version = VERSION
    return sent


def settled(receiver: Receiver) -> ReceiveState:
    deadline = time.monotonic() + 30
    while receiver.poll().status in (JOINING, RECEIVING):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return receiver.poll()


def meet(
    store: RendezvousStore,
    receiver: Receiver,
    epoch: int,
    abandoned: threading.Event | None = None,
) -> WeightGroup:
    receiver.join(join_message(store, epoch))
    address = GroupAddress(epoch, 0, 1, "gloo", store.host, store.port, store.prefix, 0, 2, 5.0)
    group = WeightGroup(address, CPU, abandoned)
    assert settled(receiver) == ReceiveState(JOINED, epoch)
    return group


def test_staged_weights_are_applied_once_and_a_broken_epoch_is_forgotten() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), random_version()
    group = meet(store, receiver, 1)
    receiver.receive(publish_message(1, sent))
    group.broadcast(sent.buffers[0])  # and no more: the sender dies
    del group
    assert settled(receiver).status == FAILED

    group = meet(store, receiver, 2)
    receiver.receive(publish_message(2, sent))
    send(group, sent, VERSION)
    assert settled(receiver).status == STAGED
    got: dict[str, torch.Tensor] = {}
    receiver.apply(lambda views: got.update((name, tensor.clone()) for name, tensor in views))
    for name, tensor in sent.views():
        assert torch.equal(got[name].view(torch.uint8), tensor.view(torch.uint8))
    assert receiver.poll() == ReceiveState(JOINED, 2)
    with pytest.raises(AssertionError):
        receiver.apply(lambda views: None)
    receiver.abandon()
    assert receiver.poll().status == IDLE


@pytest.mark.parametrize(
    ("trailer", "reason"), [((1, 1, 7), "checksum"), ((1, 2, 7), "1.2 came over lane 0")]
)
def test_other_bytes_than_those_announced_are_never_staged(
    trailer: tuple[int, int, int], reason: str
) -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), random_version()
    group = meet(store, receiver, 1)
    receiver.receive(publish_message(1, sent))
    for buffer in sent.buffers:
        group.broadcast(buffer)
    group.broadcast(torch.tensor(trailer).view(torch.uint8))
    state = settled(receiver)
    assert state.status == FAILED
    assert reason in state.reason


def test_a_version_that_does_not_fit_is_told_from_a_broken_group() -> None:
    store, receiver = RendezvousStore("127.0.0.1"), Receiver(device=CPU)
    meet(store, receiver, 1)
    too_large = plan_buckets([TensorSpec("a", "float32", (1 << 41,))], 1 << 16)
    message = weights_pb2.Publish(
        epoch=1, manifest=manifest_to_proto(Manifest(VERSION, too_large, "fp32"))
    )
    receiver.receive(message.SerializeToString())
    state = settled(receiver)
    assert (state.status, state.no_room) == (FAILED, True)
    assert state.reason.startswith("weights.stage = device: a version of 8796.1 GB does not fit")


def test_a_slot_that_is_overwritten_while_it_is_sent_is_no_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pieces of one version and pieces of the next would have a right checksum together."""
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), random_version()
    group = meet(store, receiver, 1)
    receiver.receive(publish_message(1, sent))
    begin = group.begin_broadcast

    def overwritten(piece: torch.Tensor) -> None:
        begin(piece)
        sent.version = None

    monkeypatch.setattr(group, "begin_broadcast", overwritten)
    with pytest.raises(GroupError, match=r"1\.1 was overwritten by None"):
        send(group, sent, VERSION)


def random_bytes(snapshot: Snapshot) -> None:
    snapshot.memory.random_(0, 256)


def staged_with(fill: Callable[[Snapshot], None]) -> StagingSlots:
    slots = StagingSlots(SPECS)
    slots.fill(0, VERSION, 0.0, fill)
    return slots


def test_bytes_that_change_after_they_were_staged_are_never_applied() -> None:
    """A processor's checksum is that of what was staged, taken once."""
    store, receiver = RendezvousStore("127.0.0.1"), Receiver(device=CPU)
    sent = staged_with(random_bytes)[0]
    group = meet(store, receiver, 1)
    sent.buffers[0][5] ^= 4
    receiver.receive(publish_message(1, sent))
    send(group, sent, VERSION)
    state = settled(receiver)
    assert (state.status, "checksum" in state.reason) == (FAILED, True)


def test_each_filling_of_a_slot_has_its_own_checksum_and_a_broken_one_has_none() -> None:
    slots = staged_with(random_bytes)
    first = slots[0].checksum
    slots.fill(0, PolicyVersion(1, 2), 0.0, random_bytes)
    assert None not in (first, slots[0].checksum)
    assert slots[0].checksum != first

    def breaks(snapshot: Snapshot) -> None:
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        slots.fill(0, PolicyVersion(1, 3), 0.0, breaks)
    assert (slots[0].version, slots[0].checksum) == (None, None)


def test_a_join_over_what_the_device_cannot_receive_fails() -> None:
    receiver = Receiver(device=CPU)
    receiver.join(join_message(RendezvousStore("127.0.0.1"), 1, backend="nccl"))
    assert (
        receiver.poll().reason
        == "the trainer sends over nccl, which this generator on cpu cannot receive"
    )


def test_an_abandoned_group_sends_no_further_piece() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), random_version()
    abandoned = threading.Event()
    group = meet(store, receiver, 1, abandoned)
    abandoned.set()
    with pytest.raises(GroupError, match="abandoned"):
        send(group, sent, VERSION)


def test_a_slot_that_holds_another_version_is_not_sent() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), random_version()
    group = meet(store, receiver, 1)
    with pytest.raises(GroupError, match=r"1\.2 was asked for, 1\.1 is staged"):
        send(group, sent, PolicyVersion(1, 2))


def test_a_rendezvous_nobody_else_comes_to_ends_at_its_deadline() -> None:
    store, receiver = RendezvousStore("127.0.0.1"), Receiver(device=CPU)
    receiver.join(join_message(store, 1, timeout_seconds=0.5))
    state = settled(receiver)
    assert state.status == FAILED
    assert "rendezvous" in state.reason


def test_a_broadcast_nobody_sends_ends_at_its_deadline() -> None:
    store, receiver, sent = (
        RendezvousStore("127.0.0.1"),
        Receiver(device=CPU),
        Snapshot.on(CPU, SPECS),
    )
    receiver.join(join_message(store, 1, timeout_seconds=1.0))
    group = WeightGroup(
        GroupAddress(1, 0, 1, "gloo", store.host, store.port, store.prefix, 0, 2, 5.0), CPU
    )
    settled(receiver)
    receiver.receive(publish_message(1, sent))
    assert settled(receiver).status == FAILED
    with pytest.raises(GroupError):
        group.broadcast(torch.zeros(50_000_000, dtype=torch.uint8))


@pytest.mark.parametrize(
    "fields", [{"backend": "mpi"}, {"rank": 2}, {"lanes": 0}, {"lanes": 1 << 20}]
)
def test_a_contradictory_join_fails(fields: Any) -> None:
    receiver = Receiver(device=CPU)
    receiver.join(join_message(RendezvousStore("127.0.0.1"), 3, **fields))
    assert receiver.poll()[:2] == (FAILED, 3)


def test_receiving_outside_a_group_or_nonsense_fails() -> None:
    receiver = Receiver(device=CPU)
    receiver.receive(publish_message(1, Snapshot.on(CPU, SPECS)))
    assert receiver.poll().status == FAILED
    receiver.receive(b"\xff\xff not protobuf")
    assert receiver.poll().status == FAILED


def test_a_generator_is_as_far_as_its_slowest_worker() -> None:
    staged, receiving = ReceiveState(STAGED, 4, 0.5), ReceiveState(RECEIVING, 4)
    assert merge_states([staged, receiving]).status == RECEIVING
    assert merge_states([staged, staged._replace(seconds=0.7)]) == ReceiveState(STAGED, 4, 0.7)
    failed = ReceiveState(FAILED, 4, reason="why")
    assert merge_states([staged, failed, receiving]).reason == "why"
    no_room = failed._replace(reason="it does not fit", no_room=True)
    for states in ([failed, no_room], [no_room, failed], [receiving, failed, no_room]):
        assert merge_states(states) == no_room, (
            "what is never tried again must not hide behind another failure"
        )


LEAVES_IN_MID_BROADCAST = """
import torch
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.process_group import GroupAddress, RendezvousStore

store = RendezvousStore("127.0.0.1")
sides = [
    GroupWorker(GroupAddress(1, 0, 1, "gloo", store.host, store.port, store.prefix, rank, 2, 2.0), torch.device("cpu"))
    for rank in (0, 1)
]
for side in sides:
    side.opened.result(10)
sides[1].submit(lambda group: group.broadcast(torch.zeros(8, dtype=torch.uint8)))
"""  # noqa: E501


def test_memory_that_is_refused_while_a_version_travels_is_no_broken_group() -> None:
    """A group that broke is opened again; one that lacks room would find none the next time
    either.
    """

    def refused(group: WeightGroup) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB")

    store = RendezvousStore("127.0.0.1")
    worker = GroupWorker(
        GroupAddress(1, 0, 1, "gloo", store.host, store.port, store.prefix, 0, 1, 10.0), CPU
    )
    with pytest.raises(
        NoRoomError, match=r"out of memory while a version travelled \(CUDA out of memory"
    ):
        worker.submit(refused).result(20)


def test_a_process_that_ends_in_mid_broadcast_ends_in_good_order() -> None:
    assert (
        subprocess.run([sys.executable, "-c", LEAVES_IN_MID_BROADCAST], timeout=60).returncode == 0
    )
