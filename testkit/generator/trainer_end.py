"""The trainer's ends of both wires, for tests that run the generator as a process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil

from rollcast.config.run import RunConfig
from rollcast.connections.port_files import port_file
from rollcast.rollouts.base import Delivery
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.publisher import Publisher
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from testkit.tiny_model import perturb
from testkit.uncompiled import UNCOMPILED


def copy_weights(weights: dict[str, Any], snapshot: Snapshot) -> None:
    for name, tensor in snapshot.views():
        tensor.copy_(weights[name])


class TrainerEnd:
    """Publishes perturbed weights of a Hugging Face model and reads groups."""

    def __init__(
        self, config: RunConfig, model: Any, incarnation: int = 1, history: Any = ()
    ) -> None:
        import torch

        self.queue = RedisTrainerQueue(config.redis, config.run)
        self.model = model
        self.incarnation = incarnation
        self.base = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.weights: dict[PolicyVersion, dict[str, Any]] = {}
        self.removed: list[tuple[str, str]] = []
        specs = [
            TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
            for name, value in self.base.items()
        ]
        self.slots = StagingSlots(plan_buckets(specs, config.weights.bucket_bytes))
        self.publisher = Publisher(
            weights=config.weights,
            rpc=config.rpc,
            incarnation=incarnation,
            history=history,
            lm_head=config.recipe.lm_head,
            specs=specs,
            device=torch.device("cpu"),
            exporter=Exporter(config.run),
            on_removed=self._on_removed,
            slots=self.slots,
        )
        self.port = self.publisher.start()

    def publish(self, step: int) -> PolicyVersion:
        version = PolicyVersion(self.incarnation, step)
        self.weights[version] = perturb(self.base, seed=1000 * self.incarnation + step)
        slot = self.publisher.stage()
        # Seconds for a slot to become free
        self.slots.fill(slot, version, 5.0, partial(copy_weights, self.weights[version]))
        self.publisher.publish(slot, version)
        return version

    def read(self, count: int, seconds: float = 200.0) -> list[Delivery]:
        deliveries: list[Delivery] = []
        deadline = time.monotonic() + seconds
        while len(deliveries) < count:
            assert time.monotonic() < deadline, f"{len(deliveries)} of {count} groups came"
            deliveries += self.queue.read(count - len(deliveries), 0.2)
        return deliveries

    def close(self) -> None:
        self.publisher.stop(2.0)
        self.queue.close()

    def _on_removed(self, generator: str, reason: str) -> None:
        self.removed.append((generator, reason))
        self.queue.fence(generator, reason)


class GeneratorProcess:
    """`python -m rollcast.generator`; its output goes to a file."""

    def __init__(
        self, config: RunConfig, config_path: Path, name: str, programs: ForkedPrograms
    ) -> None:
        self._ports = port_file(config.run_folder, name)
        self._ports.unlink(missing_ok=True)
        self.log = config_path.with_name(f"{name}.log")
        arguments = ["--config", str(config_path), "--name", name]
        uncompiled = {UNCOMPILED: os.environ[UNCOMPILED]} if UNCOMPILED in os.environ else {}
        self.process = programs.start("rollcast.generator", arguments, self.log, uncompiled)
        # A lower priority than the test process
        psutil.Process(self.process.pid).nice(5)  # with its engine, which it forks seconds later

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self._ports.read_text().strip()}{path}", timeout=5.0)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 200.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < deadline, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def wait_for_port(self) -> None:
        self.wait_until(self._ports.exists)

    def is_ready(self) -> bool:
        try:
            return self.get("/readyz").status_code == 200
        except httpx.ConnectError:
            return False

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
