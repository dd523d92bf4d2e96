"""Simulated episodes take the time that their turns and calls take, and long ones are used as often
as short ones.
"""

from __future__ import annotations

import pytest

from lab.length_bias.episodes import MAX_STALENESS_STEPS, deciles, simulate
from rollcast.recipe.schedule import PipelineRL
from rollcast.simulation.fleet import Delays
from rollcast.simulation.generator import EngineSpeed
from rollcast.simulation.workload import Workload, constant
from testkit.simulation.episodes import EpisodePipeline, SimulatedTurn


def one_step(slots: int, rollouts: int, max_episodes: int = 100) -> float:
    """Seconds until a group whose rollouts have two turns of 1 s, with a call of 10 s between them,
    has been used.
    """
    turns = [
        SimulatedTurn(tokens=100, call_seconds=10.0),
        SimulatedTurn(tokens=100, call_seconds=99.0),
    ]
    pipeline = EpisodePipeline(
        turns=lambda task, index: turns,
        max_episodes=max_episodes,
        schedule=PipelineRL(max_staleness=0, groups_per_step=1),
        workload=Workload(lengths=constant(1.0), rollouts_per_group=rollouts),
        engines=[EngineSpeed(slots=slots, seconds_per_token=0.01)],
        delays=Delays(publish=0.0, join=0.0),
    )
    pipeline.run(steps=1)
    return pipeline.settled[0].seconds - 1.0  # without the update


def test_a_call_holds_no_slot() -> None:
    assert one_step(slots=1, rollouts=1) == pytest.approx(12.0)
    # Ten turns follow one another on the slot, the calls run side by side, and so do second turns
    # behind first ones.
    assert one_step(slots=1, rollouts=10) == pytest.approx(10 + 10 + 1)
    assert one_step(slots=10, rollouts=10) == pytest.approx(12.0)


def test_long_episodes_are_used_as_often_as_short_ones() -> None:
    steps = 60
    pipeline = simulate(steps)
    rows = deciles(pipeline.settled, (steps - MAX_STALENESS_STEPS - 2) * 8)
    assert all(row["used"] == row["dispatched"] for row in rows)
    assert max(item.staleness for item in pipeline.settled) <= MAX_STALENESS_STEPS
    assert rows[-1]["ended_late_share"] > 0.5 > rows[0]["ended_late_share"], (
        "long ones do end later"
    )
