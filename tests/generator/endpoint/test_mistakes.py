"""Whose fault an exit code is: a program that ends by the model's mistake is trained, one that
failed is not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import WORLD, episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, served_endpoint
from testkit.generator.played_sessions import play_session
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

BODY = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "what is in the room?"}],
    "max_tokens": 5,
}
AGENT = """
import json, os, sys, urllib.error, urllib.request

def post(url, body):
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

row = json.load(sys.stdin)
chat = {"messages": [{"role": "user", "content": "what is in the room?"}], "max_tokens": 5}
for model in ("ROLLCAST_MODEL", *(["HOME"] if row["refused"] else [])):
    try:
        post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", {**chat, "model": os.environ[model]})
    except urllib.error.HTTPError:
        pass
if row["reward"] is not None:
    post(os.environ["ROLLCAST_REWARD_URL"], {"reward": row["reward"]})
print("no tool of this name")
sys.stdout.flush()
os._exit(row["code"]) if row["code"] >= 0 else os.kill(os.getpid(), -row["code"])
"""  # noqa: E501


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(
    roomy_engine: SharedEngine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    program = tmp_path_factory.mktemp("harness") / "agent.py"
    program.write_text(AGENT)
    settings = {"command": [sys.executable, str(program)], "model_exit_codes": [3], "restarts": 0}
    async with served_endpoint(versions.engine, settings) as served:
        yield served


async def played(
    endpoint: ServedEndpoint,
    code: int,
    reward: float | None,
    *,
    refused: bool = False,
    verifier: str = "",
) -> tuple[Rollout, Any]:
    row = json.dumps({"code": code, "reward": reward, "refused": refused})
    task = dataclasses.replace(
        episode_task(9, 1, LengthBudget(max_tokens=380)), reference=row, verifier=verifier
    )
    sampler = endpoint.sampler(task)
    await asyncio.wait_for(sampler.run(), 120)
    await endpoint.engine.observe()
    return sampler.rollout(), sampler.verdict


@pytest.mark.parametrize(
    ("code", "reward", "expected"), [(3, None, 0.0), (3, 0.75, 0.75), (1, 0.5, 0.5), (1, 0.0, 0.0)]
)
async def test_a_mistake_of_the_model_is_trained(
    versions: Versions, endpoint: ServedEndpoint, code: int, reward: float | None, expected: float
) -> None:
    before = endpoint.count(episode_metrics.ENDPOINT_MISTAKES, environment=WORLD)
    rollout, verdict = await played(endpoint, code, reward)
    assert rollout.episode is not None
    assert rollout.episode.end in (EpisodeEnd.ANSWERED, EpisodeEnd.DONE, EpisodeEnd.TOKENS)
    assert verdict.status is (GradingStatus.OK if expected else GradingStatus.WRONG)
    assert verdict.reward == expected
    assert rollout.num_tokens
    assert endpoint.count(episode_metrics.ENDPOINT_MISTAKES, environment=WORLD) == before + 1


@pytest.mark.parametrize(
    ("code", "reward", "refused", "reason"),
    [
        (1, None, False, "ended with exit code 1: no tool of this name"),
        (-9, 1.0, False, "ended with exit code 137"),
        (127, 1.0, False, "ended with exit code 127"),
        (3, None, True, "ended with exit code 3; it was refused: .*not served"),
        (1, 1.0, True, "ended with exit code 1; it was refused"),
    ],
    ids=["another code", "signal", "not started", "refused", "refused with a reward"],
)
async def test_what_is_not_the_models_fault_gives_no_verdict(
    versions: Versions,
    endpoint: ServedEndpoint,
    code: int,
    reward: float | None,
    refused: bool,
    reason: str,
) -> None:
    before = endpoint.count(episode_metrics.ENDPOINT_MISTAKES, environment=WORLD)
    rollout, verdict = await played(endpoint, code, reward, refused=refused)
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert re.search(reason, rollout.episode.reason), rollout.episode.reason
    assert verdict.status is GradingStatus.ERROR
    assert endpoint.count(episode_metrics.ENDPOINT_MISTAKES, environment=WORLD) == before


async def test_a_verifier_judges_what_was_there(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    rollout, verdict = await played(endpoint, 3, None, verifier="exact")
    assert rollout.episode is not None
    assert rollout.episode.end is not EpisodeEnd.FAILED
    assert verdict is None, "the verifier has not been asked"


async def test_calls_after_a_reported_end_are_refused(versions: Versions) -> None:
    answers: list[int] = []

    async def program(client: Any, session: HarnessSession) -> None:
        await client.chat.completions.create(**BODY)
        url = f"{served.sessions.url}/rollcast/{session.id}"
        headers = {"authorization": f"Bearer {session.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=60) as other:
            await other.post(f"{url}/reward", json={"reward": 1.0})
            await other.post(f"{url}/end", json={})
            answers.extend(
                [
                    (await other.post(f"{url}/v1/chat/completions", json=BODY)).status_code
                    for _ in range(3)
                ]
            )

    async with served_endpoint(
        versions.engine, {"reset_seconds": 60, "call_seconds": 60}
    ) as served:
        for number in range(4):
            task = episode_task(70 + number, 1, LengthBudget(max_tokens=100))
            _, rollout = await play_session(served, task, program)
            assert rollout.episode is not None
            assert len(rollout.episode.turns) == 1
    assert answers == [404] * 12
