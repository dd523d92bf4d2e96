"""Several trainer ranks that send their own rows: rate and raw gloo's, pause and a plain copy's,
copies staged.

Each rank is a process with the real lane sender, rank 0 has the real publisher, the generator is
that of the tests. Raw gloo: one group of two, the same bytes in pieces of the same size between
memory of the same kind that is reused, nothing checked.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue

import torch

from rollcast.config.connections import Weights
from rollcast.weights.plan.manifest import PIECE_BYTES, BucketSpec, TensorSpec, plan_buckets
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.lanes import Lanes, LaneSender
from rollcast.weights.sender.staging import StagingSlots
from rollcast.weights.transport.process_group import GroupAddress, RendezvousStore, WeightGroup
from rollcast.wire.version import PolicyVersion

CPU = torch.device("cpu")
PATIENCE_SECONDS = 5.0
HEARD_SECONDS = 120.0
"""Wait for a message of another process, which imports torch first and may send for long on a busy
machine."""
SPAWN = multiprocessing.get_context("spawn")


class OtherRanks:
    """Trainer ranks 1, 2, ..: a process each."""

    def __init__(self, buckets: tuple[BucketSpec, ...], world_size: int) -> None:
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(1, world_size):
            ours, theirs = SPAWN.Pipe()
            process = SPAWN.Process(
                target=_other_rank, args=(theirs, buckets, rank, world_size), daemon=True
            )
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        self.lanes = Lanes(world_size, self._tell)

    def fill(self, slot: int, version: PolicyVersion) -> None:
        for pipe in self._pipes:
            pipe.send((slot, version))
        for pipe in self._pipes:
            _heard(pipe)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join(HEARD_SECONDS)

    def _tell(self, order: bytes) -> None:
        for pipe in self._pipes:
            pipe.send(order)


def fill(snapshot: Snapshot, step: int) -> None:
    """Every byte is another one after every step."""
    for buffer in snapshot.buffers:
        buffer.fill_(step % 251)


def _other_rank(
    pipe: Connection, buckets: tuple[BucketSpec, ...], rank: int, world_size: int
) -> None:
    torch.set_num_threads(1)
    slots = StagingSlots(shard_buckets(buckets, rank, world_size))
    orders: SimpleQueue[bytes | None] = SimpleQueue()
    LaneSender(rank, slots, CPU, iter(orders.get, None))
    while True:
        message = pipe.recv()
        if isinstance(message, bytes):
            orders.put(message)
        else:
            slot, version = message
            slots.fill(slot, version, PATIENCE_SECONDS, partial(fill, step=version.step))
            pipe.send("filled")


class RawGloo:
    """One group of two processes, and nothing else."""

    def __init__(self, num_bytes: int, settings: Weights) -> None:
        self._store = RendezvousStore("127.0.0.1")
        address = partial(
            GroupAddress,
            1,
            0,
            1,
            "gloo",
            self._store.host,
            self._store.port,
            self._store.prefix,
            timeout_seconds=settings.bucket_timeout_seconds,
        )
        self._pipe, theirs = SPAWN.Pipe()
        self._process = SPAWN.Process(
            target=_raw_receiver,
            args=(theirs, address(rank=1, world_size=2), num_bytes),
            daemon=True,
        )
        self._process.start()
        _heard(self._pipe)
        self._group = WeightGroup(address(rank=0, world_size=2), CPU)
        self._buffer = _memory(num_bytes)

    def seconds(self) -> float:
        """Seconds of one broadcast of everything, until the last byte has arrived."""
        started = time.perf_counter()
        self._pipe.send("now")
        for start in range(0, len(self._buffer), PIECE_BYTES):
            self._group.broadcast(self._buffer[start : start + PIECE_BYTES])
        _heard(self._pipe)
        return time.perf_counter() - started

    def end(self) -> None:
        self._process.kill()
        self._process.join(HEARD_SECONDS)


def _heard(pipe: Connection) -> None:
    """Wait for a word of the other process."""
    if not pipe.poll(HEARD_SECONDS):
        raise TimeoutError(f"the other process said nothing for {HEARD_SECONDS:g} s")
    pipe.recv()


def _memory(num_bytes: int) -> torch.Tensor:
    """Memory of the kind that versions are staged in: large pages are faster."""
    return Snapshot.on(
        CPU, plan_buckets([TensorSpec("raw", "uint8", (num_bytes,))], num_bytes)
    ).memory[:num_bytes]


def _raw_receiver(pipe: Connection, address: GroupAddress, num_bytes: int) -> None:
    torch.set_num_threads(1)
    buffer = _memory(num_bytes)
    pipe.send("ready")
    group = WeightGroup(address, CPU)
    while True:
        pipe.recv()
        for start in range(0, num_bytes, PIECE_BYTES):
            group.broadcast(buffer[start : start + PIECE_BYTES])
        pipe.send("received")


def copy_seconds(num_bytes: int, repeats: int) -> float:
    """Median of a plain copy."""
    source, target, seconds = (
        torch.ones(num_bytes, dtype=torch.uint8),
        torch.ones(num_bytes, dtype=torch.uint8),
        [],
    )
    for _ in range(repeats):
        started = time.perf_counter()
        target.copy_(source)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
