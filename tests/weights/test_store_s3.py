"""Versions that generators pull from S3: a real server where s3fs and moto are installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from testkit.object_storage import needs_s3, s3_server
from testkit.weights.trainer_end import WEIGHTS, Process, Trainer, wait_until

pytestmark = needs_s3


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    with s3_server() as bucket:
        yield bucket


def test_versions_travel_as_objects_which_are_removed_when_no_generator_needs_them(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    s3: str,
    tmp_path: Path,
) -> None:
    location = f"{s3}/{tmp_path.name}/run"
    store: dict[str, Any] = {
        "transport": "store",
        "store": {"location": location, "anchor_every": 3},
    }
    trainer = start_trainer(lanes=2, **store)
    expected = trainer.publish(0)
    settings = {
        "weights": WEIGHTS | store,
        "environment": {name: value for name, value in os.environ.items() if "AWS_" in name},
    }
    generator = start_generator("a", trainer.rpc, **settings)
    assert generator.wait("applied", version="1.0")["digest"] == expected
    for step in range(1, 8):
        expected = trainer.publish(step, changed_share=0.05)
        assert generator.wait("applied", version=f"1.{step}")["digest"] == expected
    files: Any = fsspec.filesystem("s3", use_listings_cache=False)

    def oldest_step() -> int:
        names = [path.rpartition("/")[2] for path in files.ls(location, detail=False)]
        return min(int(name.partition("-")[0].partition(".")[2]) for name in names)

    wait_until(lambda: oldest_step() >= 3)
    late = start_generator("late", trainer.rpc, **settings)
    assert late.wait("applied", version="1.7")["digest"] == expected
