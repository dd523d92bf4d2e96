"""Versions that generators pull from a store: what arrives is whole, whatever breaks on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.weights.trainer_end import WEIGHTS, Process, Trainer
from tests.weights.uneven import UNEVEN


@pytest.fixture
def store(tmp_path: Path) -> dict[str, Any]:
    """Settings of a store in a folder."""
    return {"transport": "store", "store": {"location": f"{tmp_path}/store", "anchor_every": 4}}


@pytest.mark.parametrize("lanes", [1, 3])
def test_every_version_arrives_as_its_changes_and_a_newcomer_begins_with_an_anchor(
    start_trainer: Callable[..., Trainer],
    start_generator: Callable[..., Process],
    store: dict[str, Any],
    lanes: int,
) -> None:
    trainer = start_trainer(UNEVEN, lanes=lanes, **store)
    expected = trainer.publish(0)
    settings = {"weights": WEIGHTS | store}
    generators = [
        start_generator("a", trainer.rpc, **settings),
        start_generator("b", trainer.rpc, num_workers=2, **settings),
    ]
    for generator in generators:
        assert generator.wait("applied", version="1.0")["digest"] == expected
    trainer.wait_members("a", "b")
    for step in range(1, 8):
        expected = trainer.publish(step, changed_share=0.02)
        for generator in generators:
            assert generator.wait("applied", version=f"1.{step}")["digest"] == expected
    late = start_generator("late", trainer.rpc, **settings)
    assert late.wait("applied", version="1.7")["digest"] == expected
    trainer.wait_members("a", "b", "late")
