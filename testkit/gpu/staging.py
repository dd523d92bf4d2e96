"""Weights into the staging buffers, and between the card and the host, next to a plain copy of as
many bytes.

stage: the learner's float32 weights, as bfloat16, into a slot of `rollcast.weights.sender.staging`,
in page-locked memory of the host, as after every step, and the same on the device. load: buffers of
the host to the device. apply: what a generator does under its pause, tensor by tensor into the
model, from where weights.stage kept the version. Of host memory both kinds are measured:
page-locked, as a generator has it, and pageable, which remains if the system refuses to lock it.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from rollcast.config.connections import Weights
from rollcast.trainer.learner.model import Policy, stage_shard, weight_specs
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.plan.manifest import plan_buckets, total_bytes
from rollcast.weights.plan.snapshot import Snapshot
from rollcast.weights.receiver.host_memory import in_host_memory
from rollcast.weights.receiver.queued_copies import QueuedCopies
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.gpu import card, models

REPEATS = 5


def stage(policy: Policy, slots: StagingSlots) -> None:
    """Stage the weights as a trainer of one rank does after every step."""
    slots.fill(0, PolicyVersion(1, 0), 0.0, partial(stage_shard, policy))


def timing_row(action: str, num_bytes: int, seconds: float) -> dict[str, Any]:
    return {
        "what": action,
        "milliseconds": round(1e3 * seconds, 3),
        "gigabytes_per_second": round(num_bytes / seconds / 1e9, 2),
    }


def copy_snapshot(source: Snapshot, target: Snapshot) -> None:
    for target_buffer, source_buffer in zip(target.buffers, source.buffers, strict=True):
        target_buffer.copy_(source_buffer)


def apply(source: Snapshot, model: dict[str, torch.Tensor], device: torch.device) -> None:
    with QueuedCopies(device) if device.type == "cuda" else nullcontext():
        for name, view in source.views():
            model[name].copy_(view)


def measure(name: str, ranks: Ranks, *, is_small: bool) -> dict[str, Any]:
    """Rows by the way of the bytes; targets: they are the same everywhere."""
    shape = models.SMALL if is_small else "1.7b"
    device = ranks.device
    policy = models.shard_model(models.random_model(shape, device), ranks, dtype=torch.bfloat16)
    buckets = plan_buckets(weight_specs(policy, "bfloat16"), Weights().bucket_bytes)
    size = total_bytes(buckets)
    slots, on_device = StagingSlots(buckets), Snapshot.on(device, buckets)
    rows = [
        timing_row(action, size, card.median_seconds(work, device, repeats=REPEATS))
        for action, work in (
            ("stage on the device", partial(stage_shard, policy, on_device)),
            ("stage on the host", partial(stage, policy, slots)),
        )
    ]
    staged, loaded = slots[0], Snapshot.on(device, buckets)
    seconds = card.median_seconds(lambda: copy_snapshot(staged, loaded), device, repeats=REPEATS)
    rows.append(timing_row("load from the host", size, seconds))
    shared = in_host_memory(buckets)
    pageable = Snapshot.on(torch.device("cpu"), buckets)
    for memory in (shared, pageable):
        copy_snapshot(staged, memory)
    model = {name: torch.empty_like(view, device=device) for name, view in loaded.views()}
    sources = {"the device": loaded, "the host": shared, "the host, pageable": pageable}
    for where, source in sources.items():
        seconds = card.median_seconds(
            partial(apply, source, model, device), device, repeats=REPEATS
        )
        rows.append(timing_row(f"apply from {where}", size, seconds))
    targets = {
        "a generator's host memory is page-locked": device.type == "cpu"
        or shared.memory.is_pinned(),
        "the host's bytes are the device's": staged.memory.equal(on_device.memory.cpu()),
        "what was loaded is what was staged": loaded.memory.equal(on_device.memory),
        "what was applied is what was staged": all(
            model[name].equal(view) for name, view in loaded.views()
        ),
    }
    rows += plain_copies(size, device)
    return {
        "shape": shape,
        "megabytes": round(size / 1e6, 3),
        "buckets": len(buckets),
        "rows": rows,
        "targets": targets,
    }


def plain_copies(size: int, device: torch.device) -> list[dict[str, Any]]:
    """Rates of the bus, by copies of one buffer of page-locked memory."""
    host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = torch.zeros(size, dtype=torch.uint8, device=device)
    ways = {"plain copy to the device": (there, host), "plain copy to the host": (host, there)}
    rows = []
    for action, (destination, source) in ways.items():
        seconds = card.median_seconds(partial(destination.copy_, source), device, repeats=REPEATS)
        rows.append(timing_row(action, size, seconds))
    return rows
