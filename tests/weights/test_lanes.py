"""Several trainer ranks, each with its own rows of every tensor: what arrives is whole, whatever
breaks on the way.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.out_of_memory import OutOfMemory
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.shards import shard_buckets, shard_segments
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.host_memory import attach, identity, in_host_memory
from rollcast.weights.transport import checksum, lane_transfer
from rollcast.weights.transport.errors import GroupError, NoRoomError
from rollcast.weights.transport.group_worker import GroupWorker
from rollcast.weights.transport.process_group import GroupAddress, RendezvousStore, WeightGroup
from rollcast.weights.transport.turns import MAX_LANES_MOVING
from rollcast.wire.version import PolicyVersion
from testkit.live_bytes import LiveBytes
from testkit.weights.generator_process import digest
from testkit.weights.trainer_end import Process, Trainer, copy_rows, fill, wait_until
from tests.weights.uneven import UNEVEN

CPU = torch.device("cpu")


@given(
    shapes=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=6),
    limit=st.integers(1, 400),
    world_size=st.integers(1, 6),
)
def test_the_ranks_rows_make_the_whole(
    shapes: list[list[int]], limit: int, world_size: int
) -> None:
    """Rows as torch.chunk gives them, put where the segments say."""
    buckets = plan_buckets(
        [TensorSpec(str(i), "bfloat16", tuple(shape)) for i, shape in enumerate(shapes)], limit
    )
    whole, made = Snapshot.on(CPU, buckets), Snapshot.on(CPU, buckets)
    fill(whole, seed=1)
    for rank in range(world_size):
        shard = Snapshot.on(CPU, shard_buckets(buckets, rank, world_size))
        copy_rows(dict(whole.views()), rank, world_size, shard)
        for bucket, packed, target in zip(buckets, shard.buffers, made.buffers, strict=True):
            segments = shard_segments(bucket, rank, world_size)
            for (offset, length), part in zip(
                segments, packed.split([n for _, n in segments]), strict=True
            ):
                target[offset : offset + length] = part
    assert digest(made.views()) == digest(whole.views())


@pytest.mark.parametrize("at_once", [1, MAX_LANES_MOVING])
def test_every_version_arrives_whole_over_three_lanes(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process], at_once: int
) -> None:
    """Where they are more than may move at once they take turns."""
    trainer = start_trainer(UNEVEN, lanes=3)
    expected = trainer.publish(0)
    generators = [
        start_generator(name, trainer.rpc, num_workers=workers, at_once=at_once)
        for name, workers in (("a", 1), ("b", 2))
    ]
    for generator in generators:
        assert generator.wait("applied", version="1.0")["digest"] == expected
    trainer.wait_members("a", "b")
    for step in (1, 2, 3):
        expected = trainer.publish(step)
        for generator in generators:
            assert generator.wait("applied", version=f"1.{step}")["digest"] == expected


def test_a_generator_killed_in_mid_version_costs_the_others_nothing_but_time(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(lanes=3)
    trainer.publish(0)
    victim = start_generator("victim", trainer.rpc, slow_seconds=0.05)
    other = start_generator("other", trainer.rpc)
    trainer.wait_members("victim", "other")
    expected = trainer.publish(1)
    victim.wait("bucket", index=3)
    victim.signal(signal.SIGKILL)
    assert other.wait("applied", version="1.1")["digest"] == expected
    trainer.wait_members("other")


def test_one_wrong_bit_on_one_lane_is_sent_again(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    trainer = start_trainer(lanes=3)
    expected = trainer.publish(0)
    generator = start_generator("a", trainer.rpc, corrupt=True)
    assert generator.wait("applied", version="1.0")["digest"] == expected
    assert trainer.metric('rollcast_weight_failures_total{reason="catch_up",run="test"}') >= 1


def test_a_rank_that_breaks_in_the_middle_of_its_part_costs_an_epoch(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer = start_trainer(lanes=2)
    trainer.publish(0)
    generator = start_generator("a", trainer.rpc)
    trainer.wait_members("a")
    begin, left = WeightGroup.begin_broadcast, [3]

    def breaking(self: WeightGroup, piece: torch.Tensor) -> None:
        if self.address.lane == 1 and left:
            if not left[-1]:
                left.clear()
                raise GroupError("its connections close, as those of a process that is killed")
            left[-1] -= 1
        begin(self, piece)

    monkeypatch.setattr(WeightGroup, "begin_broadcast", breaking)
    expected = trainer.publish(1)
    assert generator.wait("applied", version="1.1")["digest"] == expected
    assert not left
    assert trainer.metric('rollcast_weight_failures_total{reason="publish",run="test"}') >= 1


NEVER = object()


@pytest.mark.parametrize("lane", [0, 1])
def test_a_rank_that_has_no_memory_to_send_from_ends_in_one_sentence(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    monkeypatch: pytest.MonkeyPatch,
    lane: int,
) -> None:
    """Another epoch would find no more of it: rank 0 hears it where it looks at the members,
    another where it waits.
    """
    trainer = start_trainer(lanes=2)
    trainer.publish(0)
    start_generator("a", trainer.rpc)
    trainer.wait_members("a")
    begin = WeightGroup.begin_broadcast

    def refusing(self: WeightGroup, piece: torch.Tensor) -> None:
        if self.address.lane == lane:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 MiB")
        begin(self, piece)

    monkeypatch.setattr(WeightGroup, "begin_broadcast", refusing)
    trainer.publish(1)
    look = trainer.publisher.members if lane == 0 else trainer.senders[0].check
    with pytest.raises(OutOfMemory) as told:
        wait_until(lambda: look() is NEVER)
    assert str(told.value) == (
        "out of GPU memory: the part of a version that is being sent to the generators does not "
        "fit (it asked for "
        "64.00 MiB more); lower trainer.tokens_per_micro_batch, or give the trainer more ranks"
    )
    # Until the trainer looks, which may be after a whole update, the control thread goes on without
    # a word.
    turns = trainer.publisher._membership._looked_at
    wait_until(lambda: trainer.publisher._membership._looked_at > turns)
    assert trainer.metric('rollcast_weight_failures_total{reason="control",run="test"}') == 0


ATTACH = """
import sys
from rollcast.weights.receiver.host_memory import attach
from rollcast.weights.plan.manifest import plan_buckets
from testkit.weights.generator_process import digest
from tests.weights.uneven import UNEVEN
print(digest(attach(sys.argv[1], plan_buckets(UNEVEN, 1 << 14)).views()))
"""


def test_another_process_reads_what_one_has_staged_for_both() -> None:
    staged = in_host_memory(plan_buckets(UNEVEN, 1 << 14))
    fill(staged, seed=3)
    seen = subprocess.run(
        [sys.executable, "-c", ATTACH, staged.path], capture_output=True, text=True, check=True
    )
    assert seen.stdout.strip() == digest(staged.views())


def test_new_memory_under_an_old_path_is_told_from_the_old_one() -> None:
    """The system gives a number of a file again as soon as it is free."""
    specs = plan_buckets(UNEVEN, 1 << 14)
    staged = in_host_memory(specs)
    path, first = staged.path, identity(staged.path)
    attached = attach(path, specs)
    del staged
    again = in_host_memory(specs)
    assert again.path == path
    assert identity(path) != first
    fill(again, seed=4)
    assert digest(attached.views()) != digest(again.views()), (
        "who held the old memory sees none of it"
    )


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_slots_hold_a_ranks_rows_and_no_more(world_size: int) -> None:
    buckets = plan_buckets(UNEVEN, 1 << 14)
    sizes = [
        sum(spec.num_bytes for spec in shard_buckets(buckets, rank, world_size))
        for rank in range(world_size)
    ]
    assert sum(sizes) == sum(bucket.num_bytes for bucket in buckets)
    assert max(sizes) == sizes[0]


def test_a_version_that_host_memory_cannot_hold_is_one_sentence() -> None:
    """The kernel would end a process when the bytes arrive, and say nothing to the user."""
    huge = plan_buckets([TensorSpec("w", "bfloat16", (1 << 24, 1 << 24))], 1 << 60)
    with pytest.raises(
        NoRoomError,
        match=r"^weights\.stage = host: a version of 562950\.0 GB does not fit into the .* GB",
    ) as e:
        in_host_memory(huge)
    assert "\n" not in str(e.value)


def test_a_few_pieces_pass_through_a_device_whatever_the_size_of_a_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if what is staged were not on the groups' device: each piece is copied to it, or arrives
    there first.
    """
    monkeypatch.setattr(lane_transfer, "PIECE_BYTES", piece := 4 << 20)
    monkeypatch.setattr(lane_transfer, "_can_receive_into", lambda stretch, group: False)
    monkeypatch.setattr(checksum, "ProcessorChecksum", checksum.GpuChecksum)
    monkeypatch.setattr(
        WeightGroup, "_new_memory", lambda group, size: torch.empty(size, dtype=torch.uint8)
    )
    buckets = plan_buckets([TensorSpec("embedding", "bfloat16", (12_000, 1_024))], piece)
    sent, received = Snapshot.on(CPU, buckets), in_host_memory(buckets)
    fill(sent, seed=1)
    version = PolicyVersion(1, 1)
    sent.version = version

    def most(work: Callable[[WeightGroup], None], group: WeightGroup) -> int:
        with LiveBytes() as live:
            work(group)
        return live.peak_bytes

    store = RendezvousStore("127.0.0.1")
    ends = [
        GroupWorker(
            GroupAddress(1, 0, 1, "gloo", store.host, store.port, store.prefix, rank, 2, 20.0), CPU
        )
        for rank in range(2)
    ]
    root = partial(lane_transfer.send, shard=sent, version=version)
    leaf = partial(lane_transfer.receive, snapshot=received, version=version)
    at_root, at_leaf = (
        end.submit(partial(most, work)) for end, work in zip(ends, (root, leaf), strict=True)
    )
    assert piece < at_leaf.result(40.0) < 4 * piece
    copied = at_root.result(40.0) + piece  # the piece itself, which on a CPU is where it was
    assert piece <= copied < 3 * piece
    assert digest(received.views()) == digest(sent.views())
    for end in ends:
        end.abandon()
