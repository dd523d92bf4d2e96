"""Programs elsewhere: they ask a generator for their next task with the run's token, and report
their end.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.generator.endpoint import application, attempt
from rollcast.generator.endpoint.make import check_harnesses
from rollcast.rollouts.records import EpisodeEnd, LengthBudget
from testkit.generator.episode_tasks import WORLD, episode_task
from testkit.generator.harness_endpoint import MODEL, served_endpoint
from testkit.generator.scripted_engine import ScriptedEngine
from tests.generator.claiming import V1

pytestmark = pytest.mark.asyncio
TOKEN = "of the run"


async def test_a_program_asks_for_a_task_and_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application, "NEXT_TASK_SECONDS", 0.2)
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with (
        served_endpoint(engine, {"restarts": 0}, run_token=TOKEN) as endpoint,
        httpx.AsyncClient(base_url=endpoint.sessions.url, timeout=60) as plain,
    ):
        path = "/rollcast/v1/sessions"
        assert (await plain.post(path)).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert (await plain.post(path, headers=right)).status_code == 204
        sampler = endpoint.sampler(episode_task(7, 1, LengthBudget(max_tokens=100)))
        running = asyncio.create_task(sampler.run())
        task: dict[str, Any] = {}
        while not task:
            answer = await plain.post(path, headers=right)
            task = answer.json() if answer.status_code == 200 else {}
        assert (task["model"], task["environment"], task["row"]) == (MODEL, WORLD, {"room": 7})
        assert task["base_url"] == f"{endpoint.sessions.url}/rollcast/{task['session']}/v1"
        assert (await plain.post(path, headers=right)).status_code == 204, "a task has one program"
        own = {"authorization": f"Bearer {task['token']}"}
        refused = await plain.post(task["reward_url"], headers=own, json={"reward": 2})
        assert "give a number from 0 to 1" in refused.json()["error"]["message"]
        assert (await plain.post(task["reward_url"], headers=own, json={"reward": 1})).json() == {
            "used": True
        }
        assert (await plain.get(f"{task['base_url']}/models", headers=own)).json()["data"][0][
            "id"
        ] == MODEL
        assert (await plain.post(task["end_url"], headers=right, json={})).status_code == 401
        assert (
            await plain.post(task["end_url"], headers=own, json={"failed": "no browser"})
        ).status_code == 200
        await asyncio.wait_for(running, 60)
        late = await plain.get(f"{task['base_url']}/models", headers=own)
        assert late.json()["error"]["code"] == "no_session"
        rollout = sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert "reported that it failed: no browser" in rollout.episode.reason


async def test_programs_that_wait_leave_room_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(application, "MAX_WAITING_PROGRAMS", 1)
    engine: Any = ScriptedEngine()
    async with (
        served_endpoint(engine, {}, run_token=TOKEN) as endpoint,
        httpx.AsyncClient(
            base_url=endpoint.sessions.url, headers={"authorization": f"Bearer {TOKEN}"}
        ) as plain,
    ):
        first = asyncio.create_task(plain.post("/rollcast/v1/sessions", timeout=60))
        await asyncio.sleep(0.5)
        refused = await plain.post("/rollcast/v1/sessions", timeout=60)
        assert refused.status_code == 503
        assert "1 programs wait for a task here" in refused.json()["error"]["message"]
        first.cancel()
        async with asyncio.timeout(60):
            while True:
                try:
                    await plain.post("/rollcast/v1/sessions", timeout=0.2)
                except httpx.ReadTimeout:  # it waits, because the first has left its place
                    break
        await asyncio.sleep(0.5)
    assert not [one for one in caplog.records if "ASGI" in one.getMessage()]


async def test_a_task_that_no_program_takes_leaves_its_slot_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with served_endpoint(engine, {"restarts": 0}) as endpoint:
        sampler = endpoint.sampler(episode_task(1, 1, LengthBudget(max_tokens=100)))
        running = asyncio.create_task(sampler.run())
        assert sampler.occupies_slot
        monkeypatch.setattr(attempt, "MAX_SET_UP_SLOT_SECONDS", 0.1)
        await asyncio.sleep(0.2)
        assert not sampler.occupies_slot
        sampler.stop()
        await asyncio.wait_for(running, 60)


async def test_a_task_that_no_program_takes_is_is_given_up() -> None:
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with served_endpoint(engine, {"restarts": 0}) as endpoint:
        sampler = endpoint.sampler(
            episode_task(1, 1, LengthBudget(max_tokens=100), max_seconds=0.3)
        )
        await asyncio.wait_for(sampler.run(), 60)
        episode = sampler.rollout().episode
        assert episode is not None
        assert "no program took its task within 0.3 seconds" in episode.reason


async def test_an_episode_is_handed_over_while_its_program_waits() -> None:
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with served_endpoint(engine, {}) as endpoint:
        sampler = endpoint.sampler(episode_task(1, 1, LengthBudget(max_tokens=100)))
        running = asyncio.create_task(sampler.run())
        session = await endpoint.sessions.next_task(60)
        assert session is not None
        assert sampler.occupies_slot
        sampler.stop()
        await asyncio.wait_for(running, 60)
        assert session.is_closed
        assert not sampler.finished
        assert sampler.rollout().partial


async def test_outside_programs_need_the_runs_token() -> None:
    settings = {
        "run": "test",
        "model": {"path": "model"},
        "tasks": {"environments": [{"kind": "harness", "name": "agent"}]},
    }
    config = parse_run_config(settings, source="test")
    with pytest.raises(
        UserError, match=r"tasks.environments.0.command is missing, .* set ROLLCAST_HTTP_TOKEN"
    ):
        check_harnesses(config.tasks, config.http)
    check_harnesses(config.tasks, config.http.model_copy(update={"token": SecretStr("x")}))
