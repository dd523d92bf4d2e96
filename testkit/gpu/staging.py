"""Weights into the staging buffers, and between the card and the host, beside a plain copy of as many bytes.

stage: the learner's float32 weights, as bfloat16, into the spare buffers of `rollcast.weights.staging`: on the device
as under NCCL, on the host as under gloo. load: buffers of the host to the device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from rollcast.config.services import Weights
from rollcast.trainer.learner.gather import gather_weights, weight_specs
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.manifest import BucketSpec, plan_buckets, total_bytes
from rollcast.weights.snapshot import Snapshot
from rollcast.weights.staging import Staging
from rollcast.wire.version import PolicyVersion
from testkit.gpu import card, models

REPEATS = 5
HOST = torch.device("cpu")


class Stager:
    """Stages one version after the other, as a trainer does that publishes after every step."""

    def __init__(self, policy: Policy, buckets: tuple[BucketSpec, ...], place: torch.device) -> None:
        self._policy, self._buckets = policy, buckets
        self._staging = Staging(buckets, place)
        self._step = 0

    def stage(self) -> Snapshot:
        """The version that is now current."""
        snapshot = self._staging.stage(0.0)
        gather_weights(self._policy, self._buckets, snapshot, rank=0, world_size=1)
        self._staging.offer(snapshot, PolicyVersion(1, self._step))
        self._staging.take()
        self._step += 1
        return self._staging.current


def timed(what: str, num_bytes: int, seconds: float) -> dict[str, Any]:
    return {
        "what": what,
        "milliseconds": round(1e3 * seconds, 3),
        "gigabytes_per_second": round(num_bytes / seconds / 1e9, 2),
    }


def copy_snapshot(source: Snapshot, target: Snapshot) -> None:
    for ours, theirs in zip(target.buffers, source.buffers, strict=True):
        ours.copy_(theirs)


def measure(name: str, ranks: Ranks, *, is_small: bool) -> dict[str, Any]:
    """Rows by the way of the bytes; targets: they are the same everywhere."""
    shape = models.SMALL if is_small else "1.7b"
    device = ranks.device
    policy = models.sharded(models.random_model(shape, device), ranks, dtype=torch.bfloat16)
    buckets = plan_buckets(weight_specs(policy, "bfloat16"), Weights().bucket_bytes)
    size = total_bytes(buckets)
    on_device, on_host = Stager(policy, buckets, device), Stager(policy, buckets, HOST)
    rows = [
        timed("stage on the device", size, card.median_seconds(on_device.stage, device, repeats=REPEATS)),
        timed("stage on the host", size, card.median_seconds(on_host.stage, device, repeats=REPEATS)),
    ]
    staged, loaded = on_host.stage(), Snapshot(buckets, device)
    seconds = card.median_seconds(lambda: copy_snapshot(staged, loaded), device, repeats=REPEATS)
    rows.append(timed("load from the host", size, seconds))
    expected = on_device.stage().checksum()
    targets = {
        "the host's bytes are the device's": staged.checksum() == expected,
        "what was loaded is what was staged": loaded.checksum() == expected,
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
    """What the bus gives: one buffer of page-locked memory."""
    host = torch.zeros(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
    there = torch.zeros(size, dtype=torch.uint8, device=device)
    ways = {"plain copy to the device": (there, host), "plain copy to the host": (host, there)}
    rows = []
    for what, (to, of) in ways.items():
        seconds = card.median_seconds(partial(to.copy_, of), device, repeats=REPEATS)
        rows.append(timed(what, size, seconds))
    return rows
