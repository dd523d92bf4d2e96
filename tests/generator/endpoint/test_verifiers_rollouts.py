"""Tasksets of verifiers, unchanged, through the endpoint of a real engine, from a virtual
environment of their own.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollcast.generator.base_sampler import Sampler
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import WORLD, episode_task
from testkit.generator.harness_endpoint import ServedEndpoint, served_endpoint
from testkit.generator.played_sessions import check_exact
from testkit.verifiers_tasksets import installed_tasksets
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(1_200),
]

TASK = episode_task(1, 1, LengthBudget(max_tokens=400), max_turns=4, max_seconds=400)
STOP_TOKENS = tuple(range(3, 60, 3))
"""Many, so that the random model's turns are short."""


@pytest.fixture(scope="session")
def interpreter() -> Path:
    """Python of a virtual environment with verifiers and the tasksets that its `vf-init` wrote."""
    return installed_tasksets()


def served(versions: Versions, interpreter: Path, taskset: str, **settings: Any) -> Any:
    given = {
        "taskset": taskset,
        "interpreter": interpreter,
        "reset_seconds": 600,
        "call_seconds": 200,
        "restarts": 0,
    }
    return served_endpoint(versions.engine, {**given, **settings}, stop_token_ids=STOP_TOKENS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def agents(roomy_engine: SharedEngine, interpreter: Path) -> AsyncIterator[ServedEndpoint]:
    """A taskset with a harness of its own."""
    versions = await roomy_engine.versions()
    async with served(versions, interpreter, "agents") as endpoint:
        yield endpoint


async def played(endpoint: ServedEndpoint, **task: Any) -> tuple[Sampler, Rollout]:
    row = {"task": {"prompt": "what is in the room?", **task}}
    sampler = endpoint.sampler(dataclasses.replace(TASK, reference=json.dumps(row)))
    await sampler.run()
    await endpoint.engine.observe()
    return sampler, sampler.rollout()


def check_failed(endpoint: ServedEndpoint, sampler: Sampler, rollout: Rollout, reason: str) -> None:
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert reason in rollout.episode.reason
    assert sampler.verdict is not None
    assert sampler.verdict.status is GradingStatus.ERROR


async def test_the_taskset_that_init_writes_with_tools_and_verifiers_own_harness(
    versions: Versions, interpreter: Path
) -> None:
    await versions.apply(2)
    async with served(
        versions, interpreter, "rooms", arguments={"agent": {"max_turns": 3}}
    ) as endpoint:
        sampler, rollout = await played(endpoint)
        assert endpoint.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == 0
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.TURNS, rollout.episode.reason
    assert [turn.tool_calls for turn in rollout.episode.turns] == [1, 1, 1]
    assert not rollout.episode.branches
    check_exact(versions, rollout, TASK)
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 0.5, "the tool answered, so the trace has two of its answers"


async def test_reward_and_branches(versions: Versions, agents: ServedEndpoint) -> None:
    sampler, rollout = await played(agents, mode="branches")
    assert rollout.episode is not None
    assert rollout.episode.end is not EpisodeEnd.FAILED, rollout.episode.reason
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 1]
    assert len(rollout.episode.branches) == 1
    check_exact(versions, rollout, TASK)
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 0.75


async def test_a_trace_that_lacks_a_turn_is_counted_and_not_trained(agents: ServedEndpoint) -> None:
    before = agents.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD)
    sampler, rollout = await played(agents, mode="beside")
    check_failed(
        agents,
        sampler,
        rollout,
        "has 1 answers of the model in its trace, which are not the 2 that were sampled",
    )
    assert agents.count(episode_metrics.ENDPOINT_DISAGREEMENTS, environment=WORLD) == before + 1


async def test_failures_of_a_taskset_are_never_a_reward(agents: ServedEndpoint) -> None:
    sampler, rollout = await played(agents, mode="raises")
    check_failed(agents, sampler, rollout, "failed in verifiers: HarnessError")
    sampler, rollout = await played(agents, mode="no reward")
    check_failed(
        agents, sampler, rollout, "failed in verifiers: TaskError: task AgentsTask scoring"
    )
    sampler, rollout = await played(agents, mode="exits")
    check_failed(agents, sampler, rollout, "failed in verifiers: SystemExit: the game is over")
    sampler, rollout = await played(agents, mode="task exits")
    check_failed(agents, sampler, rollout, "failed in verifiers: HarnessError")
    sampler, rollout = await played(agents, mode="crash")
    check_failed(agents, sampler, rollout, "its process ended")
    sampler, rollout = await played(agents, mode="branches")
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 0.75, "its process is started again"


async def test_a_rollout_that_hangs_is_ended_and_the_next_one_plays(
    versions: Versions, interpreter: Path
) -> None:
    async with served(versions, interpreter, "agents", call_seconds=5) as endpoint:
        sampler, rollout = await played(endpoint, mode="hang")
        check_failed(endpoint, sampler, rollout, "sent no request for 5 seconds")
    async with served(versions, interpreter, "agents") as endpoint:
        sampler, rollout = await played(endpoint, mode="branches")
        assert sampler.verdict is not None
        assert sampler.verdict.reward == 0.75
