"""The receiver refuses whatever does not fit its state, and says why in `poll`."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest
import torch

from rollcast.weights.manifest import Manifest, TensorSpec, manifest_to_proto, plan_buckets
from rollcast.weights.process_group import GroupAddress, GroupError, RendezvousStore, WeightGroup
from rollcast.weights.receive_state import FAILED, IDLE, JOINED, JOINING, RECEIVING, STAGED, ReceiveState, merge_states
from rollcast.weights.receiver import Receiver
from rollcast.weights.snapshot import Snapshot
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

CPU = torch.device("cpu")
SPECS = plan_buckets([TensorSpec("a", "float32", (300,)), TensorSpec("b", "bfloat16", (70, 3))], 1 << 16)


def join_message(store: RendezvousStore, epoch: int, timeout_seconds: float = 5.0, **fields: Any) -> bytes:
    fields = {"backend": "gloo", "rank": 1, "world_size": 2, **fields}
    return weights_pb2.Join(
        epoch=epoch,
        store_host=store.host,
        store_port=store.port,
        store_prefix=store.prefix,
        timeout_seconds=timeout_seconds,
        **fields,
    ).SerializeToString()


def publish_message(epoch: int, snapshot: Snapshot, **fields: Any) -> bytes:
    manifest = Manifest(PolicyVersion(1, 1), snapshot.specs, fields.get("checksum", snapshot.checksum()), "fp32")
    return weights_pb2.Publish(epoch=epoch, manifest=manifest_to_proto(manifest)).SerializeToString()


def settled(receiver: Receiver) -> ReceiveState:
    deadline = time.monotonic() + 30
    while receiver.poll().status in (JOINING, RECEIVING):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return receiver.poll()


def meet(store: RendezvousStore, receiver: Receiver, epoch: int) -> WeightGroup:
    receiver.join(join_message(store, epoch), worker=0)
    group = WeightGroup(GroupAddress(epoch, "gloo", store.host, store.port, store.prefix, 0, 2, 5.0), CPU)
    assert settled(receiver) == ReceiveState(JOINED, epoch)
    return group


def test_staged_weights_are_applied_once_and_a_broken_epoch_is_forgotten() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), Snapshot(SPECS, CPU)
    for buffer in sent.buffers:
        buffer.random_(0, 256)
    group = meet(store, receiver, 1)
    receiver.receive(publish_message(1, sent))
    group.broadcast(sent.buffers[:1])  # and no more: the sender dies
    del group
    assert settled(receiver).status == FAILED

    group = meet(store, receiver, 2)
    receiver.receive(publish_message(2, sent))
    group.broadcast(sent.buffers)
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


def test_a_wrong_checksum_is_never_staged() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), Snapshot(SPECS, CPU)
    group = meet(store, receiver, 1)
    receiver.receive(publish_message(1, sent, checksum=7))
    group.broadcast(sent.buffers)
    state = settled(receiver)
    assert state.status == FAILED
    assert "checksum" in state.reason


def test_a_rendezvous_nobody_else_comes_to_ends_at_its_deadline() -> None:
    store, receiver = RendezvousStore("127.0.0.1"), Receiver(device=CPU)
    receiver.join(join_message(store, 1, timeout_seconds=0.5), worker=0)
    state = settled(receiver)
    assert state.status == FAILED
    assert "rendezvous" in state.reason


def test_a_broadcast_nobody_sends_ends_at_its_deadline() -> None:
    store, receiver, sent = RendezvousStore("127.0.0.1"), Receiver(device=CPU), Snapshot(SPECS, CPU)
    receiver.join(join_message(store, 1, timeout_seconds=1.0), worker=0)
    group = WeightGroup(GroupAddress(1, "gloo", store.host, store.port, store.prefix, 0, 2, 5.0), CPU)
    settled(receiver)
    receiver.receive(publish_message(1, sent))
    assert settled(receiver).status == FAILED
    with pytest.raises(GroupError):
        group.broadcast([torch.zeros(50_000_000, dtype=torch.uint8)])


@pytest.mark.parametrize("fields", [{"backend": "mpi"}, {"rank": 2}])
def test_a_contradictory_join_fails(fields: Any) -> None:
    receiver = Receiver(device=CPU)
    receiver.join(join_message(RendezvousStore("127.0.0.1"), 3, **fields), worker=0)
    assert receiver.poll()[:2] == (FAILED, 3)


def test_receiving_outside_a_group_or_nonsense_fails() -> None:
    receiver = Receiver(device=CPU)
    receiver.receive(publish_message(1, Snapshot(SPECS, CPU)))
    assert receiver.poll().status == FAILED
    receiver.receive(b"\xff\xff not protobuf")
    assert receiver.poll().status == FAILED


def test_a_generator_is_as_far_as_its_slowest_worker() -> None:
    staged, receiving = ReceiveState(STAGED, 4, 0.5), ReceiveState(RECEIVING, 4)
    assert merge_states([staged, receiving]).status == RECEIVING
    assert merge_states([staged, staged._replace(seconds=0.7)]) == ReceiveState(STAGED, 4, 0.7)
    failed = ReceiveState(FAILED, 4, reason="why")
    assert merge_states([staged, failed, receiving]).reason == "why"


LEAVES_IN_MID_BROADCAST = """
import torch
from rollcast.weights.group_worker import GroupWorker
from rollcast.weights.process_group import GroupAddress, RendezvousStore

store = RendezvousStore("127.0.0.1")
sides = [
    GroupWorker(GroupAddress(1, "gloo", store.host, store.port, store.prefix, rank, 2, 2.0), torch.device("cpu"))
    for rank in (0, 1)
]
for side in sides:
    side.opened.result(10)
sides[1].submit(lambda group: group.broadcast([torch.zeros(8, dtype=torch.uint8)]))
"""


def test_a_process_that_ends_in_mid_broadcast_ends_in_good_order() -> None:
    assert subprocess.run([sys.executable, "-c", LEAVES_IN_MID_BROADCAST], timeout=60).returncode == 0
