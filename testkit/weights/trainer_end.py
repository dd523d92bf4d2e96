"""A trainer's end of wire 2 in this process, and generators as real processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from unittest.mock import patch

import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from rollcast.config.connections import Rpc, Weights
from rollcast.connections.object_files import ObjectFolder
from rollcast.runfolder.files import parse_location
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.learner.commands import CommandReceiver, CommandSender
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.shards import shard_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.lanes import Lanes, LaneSender
from rollcast.weights.sender.publisher import Publisher
from rollcast.weights.sender.rank_store import RankStore
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.weights.generator_process import digest

FORKSERVER = multiprocessing.get_context("forkserver")
ROOT = Path(__file__).parents[2]
WEIGHTS = {
    "bucket_bytes": 1 << 16,
    "bucket_timeout_seconds": 2.0,
    "opening_timeout_seconds": 10.0,
    "acknowledge_timeout_seconds": 6.0,
    "heartbeat_seconds": 0.4,
    "heartbeat_timeout_seconds": 3.0,
    "coalesce_seconds": 0.2,
}
SPECS = [TensorSpec(f"layer.{i}.weight", "float32", (64, 240)) for i in range(12)]
"""Twelve buckets of one tensor each."""
PATIENCE_SECONDS = 40.0
"""Deadline of the tests' waits; no test asserts that something is quick."""


def start_forkserver(*modules: str) -> None:
    """Generators are forked from a server that has imported these.

    Its interpreter knows nothing of pytest's path.
    """
    # What is there already stays: on a machine with an archive the packages are found by it.
    paths = [os.environ.get("PYTHONPATH"), f"{ROOT / 'services'}", f"{ROOT}"]
    path = os.pathsep.join(path for path in paths if path)
    FORKSERVER.set_forkserver_preload(["testkit.weights.generator_process", *modules])
    with patch.dict(os.environ, {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}):
        ensure_running()


class Process:
    """A child process that reports events; `wait` finds the next one of a kind, in order of
    arrival.

    Forked from a server that has imported torch already: a real process that starts in no time.
    """

    def __init__(
        self, target: Callable[[Connection, dict[str, Any]], None], settings: dict[str, Any]
    ) -> None:
        self._pipe, child_pipe = FORKSERVER.Pipe()
        self.process = FORKSERVER.Process(target=target, args=(child_pipe, settings), daemon=True)
        self.process.start()
        child_pipe.close()
        self.events: list[dict[str, Any]] = []
        self._num_seen = 0
        self._arrived = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self, event: str, **values: Any) -> dict[str, Any]:
        """The next event that matches; earlier ones are passed over."""
        matching_event: dict[str, Any] = {}

        def has_arrived() -> bool:
            while self._num_seen < len(self.events):
                candidate = self.events[self._num_seen]
                self._num_seen += 1
                if candidate["event"] == event and values.items() <= candidate.items():
                    matching_event.update(candidate)
                    return True
            return False

        with self._arrived:
            has_come = self._arrived.wait_for(has_arrived, PATIENCE_SECONDS)
        assert has_come, (event, values, self.events)
        return matching_event

    def tell(self, command: Any) -> None:
        self._pipe.send(command)

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def close(self) -> None:
        self.process.kill()
        self.process.join(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        self._pipe.close()

    def _read(self) -> None:
        with suppress(EOFError, ConnectionError):
            while True:
                event = self._pipe.recv()
                with self._arrived:
                    self.events.append(event)
                    self._arrived.notify_all()


class Trainer:
    """A publisher in this process, with weights drawn from a seed; of `lanes` ranks the others have
    threads.
    """

    def __init__(
        self,
        specs: list[TensorSpec],
        *,
        incarnation: int = 1,
        lanes: int = 1,
        device: str = "cpu",
        **settings: Any,
    ) -> None:
        self.removed: list[tuple[str, str]] = []
        self.exporter = Exporter("test")
        rpc = {"port": 0, **settings.pop("rpc", {})}
        weights = Weights(**{**WEIGHTS, **settings})
        self.buckets = plan_buckets(specs, weights.bucket_bytes)
        self.slots = [
            StagingSlots(shard_buckets(self.buckets, rank, lanes)) for rank in range(lanes)
        ]
        orders: list[SimpleQueue[bytes | None]] = [SimpleQueue() for _ in range(1, lanes)]

        def tell(order: bytes) -> None:
            for queue in orders:
                queue.put(order)

        self.replies = CommandSender(HashStore(), lanes)
        stores: list[RankStore | None] = [None] * lanes
        if weights.uses_store:
            folder = ObjectFolder(parse_location(str(weights.store.location)))
            stores = [RankStore(folder, rank, slots) for rank, slots in enumerate(self.slots)]
        self.senders = [
            LaneSender(
                rank,
                self.slots[rank],
                torch.device(device),
                iter(queue.get, None),
                stores[rank],
                CommandReceiver(self.replies.store, rank).reply,
            )
            for rank, queue in enumerate(orders, 1)
        ]
        self._orders = orders
        self.publisher = Publisher(
            weights=weights,
            rpc=Rpc(**rpc),
            incarnation=incarnation,
            history=[(1, 7)] if incarnation > 1 else [],
            lm_head="fp32",
            specs=specs,
            device=torch.device(device),
            exporter=self.exporter,
            on_removed=lambda name, reason: self.removed.append((name, reason)),
            slots=self.slots[0],
            lanes=Lanes(lanes, tell, self.replies.take_reply),
            rank_store=stores[0],
        )
        self.incarnation = incarnation
        self._full_snapshot = Snapshot.on(torch.device("cpu"), self.buckets)
        self.rpc = {**rpc, "port": self.publisher.start()}

    def publish(self, step: int, changed_share: float = 1.0) -> str:
        """Publish random bytes as version (incarnation, step), or the last ones with this share of
        them changed; returns their digest.
        """
        slot, version = self.publisher.stage(), PolicyVersion(self.incarnation, step)
        full_snapshot = self._full_snapshot
        fill(full_snapshot, seed=step, changed_share=changed_share)
        for rank, slots in enumerate(self.slots):
            copy = partial(copy_rows, dict(full_snapshot.views()), rank, len(self.slots))
            slots.fill(slot, version, 2.0, copy)
        self.publisher.publish(slot, version)
        return digest(full_snapshot.views())

    def close(self) -> None:
        self.publisher.stop(5.0)
        for queue, sender in zip(self._orders, self.senders, strict=True):
            queue.put(None)
            sender.stop(5.0)

    def wait_members(self, *names: str) -> None:
        """Until exactly these have joined."""
        wait_until(lambda: {m.name for m in self.publisher.members() if m.joined} == set(names))

    def metric(self, text: str) -> float:
        """Value of the series whose name and labels are `text`; 0 if it does not exist yet."""
        for line in self.exporter.render().decode().splitlines():
            if line.startswith(f"{text} "):
                return float(line.removeprefix(f"{text} "))
        return 0.0


def fill(snapshot: Snapshot, seed: int, changed_share: float = 1.0) -> None:
    """Every byte at random: all bit patterns, NaN included, must travel."""
    generator = torch.Generator().manual_seed(seed)
    for buffer in snapshot.buffers:
        fresh = torch.randint(0, 256, buffer.shape, generator=generator, dtype=torch.uint8)
        if changed_share < 1:
            is_changed = torch.rand(buffer.shape, generator=generator) < changed_share
            fresh = torch.where(is_changed, fresh, buffer)
        buffer.copy_(fresh)


def copy_rows(
    full_weights: dict[str, torch.Tensor], rank: int, world_size: int, shard: Snapshot
) -> None:
    """The rows that FSDP gives a rank."""
    for name, rows in shard.views():
        if rows.numel():
            rows.copy_(
                full_weights[name].chunk(world_size)[rank] if rows.dim() else full_weights[name]
            )


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
