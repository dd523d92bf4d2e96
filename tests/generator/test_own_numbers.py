"""An environment's own numbers never cost an episode its verdict."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rollcast.environments.base import EnvironmentFailedError
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.rollouts.records import EpisodeEnd, GradingStatus
from testkit.generator.episode_tasks import WORLD, episode_parts, episode_task
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.generator.scripted_world import ScriptedWorld, ScriptedWorlds
from tests.generator.claiming import V1
from tests.generator.playing import BUDGET, done_after, four_tokens, one_call, stepping

FAILURES = "rollcast_episode_failures_total"
LEFT_OUT = "rollcast_environment_metrics_left_out_total"


@pytest.mark.parametrize(
    ("own_numbers", "metrics", "num_failures", "num_left_out"),
    [
        ({}, {}, 0, 0),
        ({"rooms": 2, "name": "hall", "a/b": 1.0}, {"rooms": 2.0}, 0, 2),
        (EnvironmentFailedError("nobody counted"), {}, 1, 0),
        (RuntimeError("a client with a mistake"), {}, 1, 0),
    ],
)
async def test_an_episode_keeps_its_verdict_whatever_its_numbers_are(
    own_numbers: Any, metrics: dict[str, float], num_failures: int, num_left_out: int
) -> None:
    world = ScriptedWorld(done_after(1), value=0.5, own_numbers=own_numbers)
    parts = episode_parts(ScriptedWorlds(lambda: world), one_call)
    engine: Any = ScriptedEngine(four_tokens)
    await engine.apply(V1)
    sampler = EpisodeSampler(engine, episode_task(1, 2, BUDGET, max_turns=8), 0, parts)
    async with stepping(engine), asyncio.timeout(20):
        await sampler.run()
    episode = sampler.rollout().episode
    assert episode is not None
    assert (episode.end, episode.restarts) == (EpisodeEnd.DONE, 0)
    assert sampler.verdict is not None
    assert (sampler.verdict.reward, sampler.verdict.status) == (0.5, GradingStatus.OK)
    assert episode.metrics == metrics
    value = parts.exporter.registry.get_sample_value
    labels = {"run": "test", "environment": WORLD}
    assert (value(FAILURES, {**labels, "stage": "metrics"}) or 0) == num_failures
    assert (value(LEFT_OUT, labels) or 0) == num_left_out
