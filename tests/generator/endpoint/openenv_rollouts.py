"""Rollouts whose turns are sessions of OpenEnv, at a served endpoint."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rollcast.config.connections import TLS
from rollcast.generator.base_sampler import Sampler
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LegKind, LengthBudget, Rollout
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import ServedEndpoint, served_endpoint
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.openenv_sessions import AGENT
from tests.generator.claiming import V1

ANSWER_TOKENS = 6


@asynccontextmanager
async def served(
    interpreter: Path, folder: Path, code: str = AGENT, tls: TLS | None = None, **settings: Any
) -> AsyncIterator[ServedEndpoint]:
    """The endpoint, whose engine samples six tokens for each request."""
    file = folder / "agent.py"
    file.write_text(code)
    factory = f"{file}:{'Factory' if code is AGENT else 'CapturedFactory'}"
    engine = ScriptedEngine(lambda request: len(request.token_ids) + ANSWER_TOKENS)
    await engine.apply(V1)
    given = {
        "factory": factory,
        "interpreter": interpreter,
        "reset_seconds": 600,
        "call_seconds": 300,
        "restarts": 0,
    }
    sampling = asyncio.create_task(always_sampling(engine))
    try:
        async with served_endpoint(engine, {**given, **settings}, tls=tls) as endpoint:
            yield endpoint
    finally:
        sampling.cancel()


async def always_sampling(engine: ScriptedEngine) -> None:
    while True:
        await engine.advance(1)


def sampler_of(endpoint: ServedEndpoint, mode: str, **task: Any) -> Sampler:
    asked = episode_task(1, 1, LengthBudget(max_tokens=400), max_seconds=900)
    return endpoint.sampler(
        dataclasses.replace(asked, reference=json.dumps({"task": {"mode": mode, **task}}))
    )


async def played(endpoint: ServedEndpoint, mode: str, **task: Any) -> tuple[Sampler, Rollout]:
    sampler = sampler_of(endpoint, mode, **task)
    await sampler.run()
    return sampler, sampler.rollout()


def check_failed(sampler: Sampler, rollout: Rollout, reason: str) -> None:
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert reason in rollout.episode.reason
    assert sampler.verdict is not None
    assert sampler.verdict.status is GradingStatus.ERROR


def sampled_without_loss(sequence: Any) -> list[tuple[int, int]]:
    given = {(leg.start, leg.end) for leg in sequence.legs if leg.kind is LegKind.GIVEN}
    return [one for one in sequence.loss_masked if one not in given]
