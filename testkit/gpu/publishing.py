"""Versions of weights from a trainer to one generator, both on this card, over NCCL and over gloo.

The publisher, its lane and the generator's receiver are the real ones; the engine only holds
tensors. The seconds are from the offer of a version to the generator's acknowledgement, so the
application is in them.
"""

from __future__ import annotations

import multiprocessing
import time
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch

from rollcast.config.connections import Rpc, Weights
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.sender.lanes import Lanes
from rollcast.weights.sender.publisher import Publisher
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.gpu import models
from testkit.gpu.parts import report
from testkit.weights import generator_process
from testkit.weights.generator_process import use_one_card

PATIENCE_SECONDS = 60.0
TRANSPORTS = ("nccl", "gloo")


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """A row for each transport."""
    if not is_small:
        use_one_card("trainer")
    device = torch.device("cpu" if is_small else "cuda:0")
    shape = models.SMALL if is_small else "0.6b"
    specs = make_specs(shape)
    rows: list[dict[str, Any]] = []
    for transport in ("gloo",) if is_small else TRANSPORTS:
        rows.append(publish_over(transport, device, specs))
        report({"rows": rows})
    return {"shape": shape, "rows": rows}


def make_specs(shape: str) -> list[TensorSpec]:
    """The tensors of a model of that shape in bfloat16."""
    model = models.random_model(shape, torch.device("meta"))
    return [
        TensorSpec(name, "bfloat16", tuple(weight.shape))
        for name, weight in model.named_parameters()
    ]


def publish_over(transport: str, device: torch.device, specs: list[TensorSpec]) -> dict[str, Any]:
    """Megabytes, median seconds of a version and gigabytes per second."""
    # A CPU has gloo alone, which it uses without being asked.
    weights = (
        Weights() if device.type == "cpu" else Weights.model_validate({"transport": transport})
    )
    buckets = plan_buckets(specs, weights.bucket_bytes)
    slots = StagingSlots(buckets)
    publisher = Publisher(
        weights=weights,
        rpc=Rpc(port=0),
        incarnation=1,
        history=[],
        lm_head="fp32",
        specs=specs,
        device=device,
        exporter=Exporter("proof"),
        on_removed=lambda name, reason: None,
        slots=slots,
        lanes=Lanes(1, lambda order: None),
    )
    port = publisher.start()
    generator = start_generator(port, weights, device)
    try:
        # Six publications count; one before them opens the group
        seconds = [publish(publisher, slots, step) for step in range(7)][1:]
    finally:
        generator.kill()
        generator.join(PATIENCE_SECONDS)
        publisher.stop(5.0)
    size = sum(bucket.num_bytes for bucket in buckets)
    typical = median(seconds)
    return {
        "transport": transport,
        "megabytes": round(size / 1e6, 3),
        "seconds_median": round(typical, 4),
        "seconds_worst": round(max(seconds), 4),
        "gigabytes_per_second": round(size / typical / 1e9, 3),
    }


def publish(publisher: Publisher, slots: StagingSlots, step: int) -> float:
    """Seconds until the generator has the version. Raises RuntimeError if it does not get it."""
    slot = publisher.stage()
    version = PolicyVersion(1, step)
    slots.fill(slot, version, PATIENCE_SECONDS, partial(_stamp, step))
    started = time.perf_counter()
    publisher.publish(slot, version)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(member.version == version for member in publisher.members()):
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"version {version} was not acknowledged within {PATIENCE_SECONDS:.0f} s"
            )
        time.sleep(0.001)
    return time.perf_counter() - started


def start_generator(port: int, weights: Weights, device: torch.device) -> Any:
    """A generator process with its weights on `device`."""
    context = multiprocessing.get_context("spawn")
    parent_end, child_end = context.Pipe()
    settings: dict[str, Any] = {"name": "g", "rpc": {"port": port}}
    settings |= {"weights": weights.model_dump(), "verify": False, "device": str(device)}
    process = context.Process(target=_generate, args=(parent_end, child_end, settings), daemon=True)
    process.start()
    return process


def _generate(_: Connection, connection: Connection, settings: dict[str, Any]) -> None:
    """Both ends of the pipe are held, so that none of its events finds it closed; they are few."""
    generator_process.run(connection, settings)


def _stamp(step: int, snapshot: Snapshot) -> None:
    for buffer in snapshot.buffers:
        buffer[:1] = step
