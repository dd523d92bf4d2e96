"""How long a version may take to be applied depends on its size."""

from __future__ import annotations

import asyncio

import pytest

from rollcast.config.connections import Weights
from rollcast.telemetry.exporter import Exporter
from rollcast.weights.plan.manifest import (
    Manifest,
    TensorSpec,
    apply_seconds,
    manifest_to_proto,
    plan_buckets,
)
from rollcast.weights.receiver.reception import EngineStuckError, Reception
from rollcast.weights.receiver.weight_engine import STAGED, ReceiverVerb, ReceiveState
from rollcast.wire import weights_pb2
from rollcast.wire.version import PolicyVersion

TIMEOUT_SECONDS = 0.05
VERSION = PolicyVersion(1, 1)


class SlowEngine:
    """Has received whatever is announced, and applies it after many times the timeout of a version
    without bytes.
    """

    async def call_receivers(self, verb: ReceiverVerb, *message: bytes) -> ReceiveState:
        return ReceiveState(STAGED, 1)

    async def apply(self, version: PolicyVersion) -> float:
        await asyncio.sleep(10 * TIMEOUT_SECONDS)
        return 0.0


async def receive(num_bytes: int) -> weights_pb2.FromGenerator | None:
    engine: object = SlowEngine()
    settings = Weights(acknowledge_timeout_seconds=TIMEOUT_SECONDS)
    reception = Reception(engine, settings, Exporter("test"), lambda: None)  # type: ignore[arg-type]
    reception.newest_epoch = 1
    buckets = plan_buckets([TensorSpec("a", "uint8", (num_bytes,))], settings.bucket_bytes)
    manifest = manifest_to_proto(Manifest(VERSION, buckets, "fp32"))
    return await reception.receive(weights_pb2.Publish(epoch=1, manifest=manifest))


def test_a_large_version_has_the_time_that_its_bytes_take() -> None:
    answer = asyncio.run(receive(60_000_000_000))
    assert answer is not None
    assert PolicyVersion.from_proto(answer.acknowledge.version) == VERSION


def test_a_small_version_that_is_not_applied_in_time_ends_the_engine() -> None:
    with pytest.raises(EngineStuckError):
        asyncio.run(receive(1_000))


def test_one_second_is_added_for_each_gigabyte() -> None:
    assert apply_seconds(30.0, 61_000_000_000) == 91.0
