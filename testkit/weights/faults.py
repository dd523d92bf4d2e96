"""Generators are killed and frozen, one after the other, while a trainer publishes: what the
survivors keep of it.

    trainer        this process: a publisher and the lanes of W ranks; publishes without a pause
    bystander      a generator that nothing happens to
    victims        generators that are killed, and replaced by new processes; or frozen until they
                   are fenced, and woken

Events strike in the middle of a broadcast, or between Join and Joined of a generator that has just
come. Threads and memory of trainer and bystander are counted before the first event, and again some
time after the last one; nothing is published at both times. On a GPU all processes share one card.
"""

from __future__ import annotations

import gc
import random
import signal
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import psutil
import torch

from rollcast.weights.plan.manifest import TensorSpec
from testkit.weights import generator_process
from testkit.weights.generator_process import use_one_card
from testkit.weights.memory_kinds import memory_by_kind
from testkit.weights.trainer_end import WEIGHTS, Process, Trainer, start_forkserver, wait_until

NUM_VICTIMS = 2
MAX_GROWN_BYTES = 16 << 20
"""Memory that a survivor may hold more than before."""
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Faults:
    lanes: int = 1
    kills: int = 30
    freezes: int = 30
    settle_seconds: float = 120.0
    megabytes: int = 32
    device: str = "cpu"
    seed: int = 1
    memory_after_each: bool = False
    """Whether the survivors' memory is recorded by kind after each event."""


@dataclass(frozen=True)
class ResourceUsage:
    """Resources that the survivors hold at one moment."""

    threads: dict[str, int]
    host_bytes: dict[str, int]
    device_bytes: int
    """Used bytes of the card that all processes share; 0 without one."""


class Fleet:
    """Trainer and generators."""

    def __init__(self, faults: Faults) -> None:
        specs = [
            TensorSpec(f"layer.{i}", "float32", (1 << 10, 1 << 8)) for i in range(faults.megabytes)
        ]
        # Small buckets, so that a fault finds a transfer under way
        settings: dict[str, Any] = {**WEIGHTS, "bucket_bytes": 4 << 20}
        self._faults = faults
        self._numbers = count()
        self._step = 0
        self._pausing = threading.Event()
        self._stopping = threading.Event()
        self._idle = threading.Event()
        self.trainer = Trainer(specs, lanes=faults.lanes, device=faults.device, **settings)
        self.trainer.publish(0)
        self.bystander = self.start("bystander")
        self.victims = [self.start(f"victim-{next(self._numbers)}") for _ in range(NUM_VICTIMS)]
        self.wait_all_joined()
        self._thread = threading.Thread(target=self._publish, name="publishing")
        self._thread.start()

    def start(self, name: str) -> Process:
        settings = {"name": name, "rpc": self.trainer.rpc, "weights": WEIGHTS, "verify": False}
        settings |= {"device": self._faults.device, "again": f"{name}-again"}
        return Process(generator_process.run, settings)

    def replace(self, victim: Process) -> Process:
        """A new generator takes the place of one that was killed."""
        victim.close()
        newcomer = self.start(f"victim-{next(self._numbers)}")
        self.victims[self.victims.index(victim)] = newcomer
        return newcomer

    def wait_all_joined(self) -> None:
        wait_until(lambda: self.num_joined() == 1 + NUM_VICTIMS, PATIENCE_SECONDS)

    def num_joined(self) -> int:
        return sum(member.joined for member in self.trainer.publisher.members())

    def serves_all(self) -> bool:
        """Whether one more version reaches every generator."""
        self._step += 1
        self.trainer.publish(self._step)
        acknowledged = self.trainer.publisher.wait_acknowledged(self._step, PATIENCE_SECONDS)
        return acknowledged and self.num_joined() == 1 + NUM_VICTIMS

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nothing is published in this context."""
        self._pausing.set()
        assert self._idle.wait(2 * PATIENCE_SECONDS), "the publishing thread has ended"
        try:
            yield
        finally:
            self._pausing.clear()

    def measure_resources(self) -> ResourceUsage:
        gc.collect()
        processes = {
            "trainer": psutil.Process(),
            "bystander": psutil.Process(self.bystander.process.pid),
        }
        free, total = torch.cuda.mem_get_info() if self._faults.device != "cpu" else (0, 0)
        return ResourceUsage(
            threads={name: process.num_threads() for name, process in processes.items()},
            host_bytes={name: anonymous_bytes(process) for name, process in processes.items()},
            device_bytes=total - free,
        )

    def memory_by_kind(self) -> dict[str, Any]:
        """That of each survivor; the next version may be on its way."""
        self.bystander.tell("memory")
        return {
            "trainer": memory_by_kind(),
            "bystander": self.bystander.wait("memory")["memory"],
        }

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(2 * PATIENCE_SECONDS)
        for process in (self.bystander, *self.victims):
            process.close()
        self.trainer.close()

    def _publish(self) -> None:
        while not self._stopping.is_set():
            if self._pausing.is_set():
                self._idle.set()
                self._stopping.wait(0.05)
                continue
            self._idle.clear()
            self._step += 1
            self.trainer.publish(self._step)
            self.trainer.publisher.wait_acknowledged(self._step, PATIENCE_SECONDS)


def anonymous_bytes(process: psutil.Process) -> int:
    """Host memory without mapped files.

    Pages that a fork has in common with its server count from the start. Otherwise each one that it
    writes to later, as a garbage collection does to all of them, would look like new memory.
    """
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


def strike(fleet: Fleet, kind: str, is_joining: bool, rng: random.Random) -> float:
    """One event; returns the seconds until all generators are members again."""
    victim = rng.choice(fleet.victims)
    if is_joining:
        lose(victim, fleet, signal.SIGKILL)
        victim = fleet.replace(victim)
        members = fleet.trainer.publisher.members
        wait_until(lambda: len(members()) == 1 + NUM_VICTIMS, PATIENCE_SECONDS)
    # Events strike at a random time within this one, about as long as a version takes
    time.sleep(rng.uniform(0.0, 0.3))
    started = time.monotonic()
    lose(victim, fleet, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    if kind == "kill":
        fleet.replace(victim)
    else:
        victim.signal(signal.SIGCONT)
    fleet.wait_all_joined()
    return time.monotonic() - started


def lose(victim: Process, fleet: Fleet, number: signal.Signals) -> None:
    """Signal a generator, and wait until the trainer has fenced it."""
    removed = len(fleet.trainer.removed)
    victim.signal(number)
    wait_until(lambda: len(fleet.trainer.removed) > removed, PATIENCE_SECONDS)


def measure(faults: Faults) -> dict[str, Any]:
    """All events of one number of lanes, in this process."""
    if faults.device != "cpu":
        use_one_card("trainer")
        torch.zeros(1, device=faults.device)
    start_forkserver()
    rng = random.Random(faults.seed)
    kinds = ["kill"] * faults.kills + ["freeze"] * faults.freezes
    rng.shuffle(kinds)
    fleet = Fleet(faults)
    try:
        # Once before the count: what Python, gRPC and torch make at a first use and keep.
        for kind in ("kill", "freeze"):
            strike(fleet, kind, False, rng)
        with fleet.quiet():
            # Before the first count: longer than the deadlines of what the warm-up left behind
            time.sleep(min(faults.settle_seconds, 20.0))
            usage_before = fleet.measure_resources()
            memory_before = fleet.memory_by_kind()
        rows: list[dict[str, Any]] = []
        for number, kind in enumerate(kinds):
            # Each third event strikes a generator that is just joining
            is_joining = number % 3 == 0
            seconds = strike(fleet, kind, is_joining, rng)
            rows.append({"kind": kind, "joining": is_joining, "seconds": seconds})
            if faults.memory_after_each:
                rows[-1]["memory_mib"] = fleet.memory_by_kind()
        with fleet.quiet():
            time.sleep(faults.settle_seconds)
            usage_after = fleet.measure_resources()
            memory_after = fleet.memory_by_kind()
            serves_all = fleet.serves_all()
        targets = {
            "every survivor serves or is served": serves_all,
            "the bystander was never fenced": "bystander" not in dict(fleet.trainer.removed),
        }
        figures = summary(faults, rows, usage_before, usage_after, targets)
        figures["memory_mib"] = {"before": memory_before, "after": memory_after}
        return figures | ({"after_each_event": rows} if faults.memory_after_each else {})
    finally:
        fleet.close()


def send_figures(pipe: Connection, faults: Faults) -> None:
    """`measure` in a spawned process, which finds no function of a program's main module."""
    pipe.send(measure(faults))
    pipe.close()


def summary(
    faults: Faults,
    rows: list[dict[str, Any]],
    usage_before: ResourceUsage,
    usage_after: ResourceUsage,
    targets: dict[str, bool],
) -> dict[str, Any]:
    """`targets`: those of the run, to which those of the resources are added."""
    grown = {
        name: usage_after.host_bytes[name] - usage_before.host_bytes[name]
        for name in usage_before.host_bytes
    }
    device_grown = usage_after.device_bytes - usage_before.device_bytes
    return {
        "lanes": faults.lanes,
        "megabytes": faults.megabytes,
        "settle_seconds": faults.settle_seconds,
        "events": {kind: sum(row["kind"] == kind for row in rows) for kind in ("kill", "freeze")},
        "seconds_until_all_are_members_again": {
            kind: statistics.median(
                [row["seconds"] for row in rows if row["kind"] == kind] or [0.0]
            )
            for kind in ("kill", "freeze")
        },
        "threads_before": usage_before.threads,
        "threads_after": usage_after.threads,
        "host_mib_before": {
            name: round(size / 2**20, 1) for name, size in usage_before.host_bytes.items()
        },
        "host_mib_grown": {name: round(size / 2**20, 1) for name, size in grown.items()},
        "device_mib_grown": round(device_grown / 2**20, 1),
        "targets": targets
        | {
            "no more threads than before": all(
                usage_after.threads[name] <= n for name, n in usage_before.threads.items()
            ),
            "at most 16 MiB more host memory": max(grown.values()) <= MAX_GROWN_BYTES,
            "at most 16 MiB more device memory": device_grown <= MAX_GROWN_BYTES,
        },
    }
