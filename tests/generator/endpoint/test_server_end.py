"""The end of a generator's server while requests are open: an answer for each, and no traceback in
the log.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from rollcast.rollouts.records import LengthBudget
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import (
    MODEL,
    ServedEndpoint,
    claim_next_session,
    served_endpoint,
)
from testkit.generator.scripted_engine import ScriptedEngine
from tests.generator.claiming import V1

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600)]
"""The first test to import vLLM waits for it, on a busy machine for minutes."""
RUN_TOKEN = "token-of-the-run"


async def running(endpoint: ServedEndpoint, count: int) -> None:
    async with asyncio.timeout(120):
        while endpoint.engine.num_running < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def streamed(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str:
    async with client.stream("POST", url, json={**body, "stream": True}) as answer:
        return "".join([part async for part in answer.aiter_text()])


async def test_open_requests_are_answered_when_the_server_stops(
    capfd: pytest.CaptureFixture[str],
) -> None:
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with served_endpoint(
        engine, {"restarts": 0}, calls=lambda tokens: 0, run_token=RUN_TOKEN
    ) as endpoint:
        sampler = endpoint.sampler(
            episode_task(1, 1, LengthBudget(max_tokens=100), max_seconds=600.0)
        )
        playing = asyncio.create_task(sampler.run())
        session = await claim_next_session(endpoint)
        url = f"{endpoint.sessions.url}/rollcast/{session.id}/v1/chat/completions"
        body = {
            "model": MODEL,
            "messages": [{"role": "user", "content": "go on"}],
            "max_tokens": 20,
        }
        own = {"authorization": f"Bearer {session.token}"}
        run = {"authorization": f"Bearer {RUN_TOKEN}"}
        async with (
            httpx.AsyncClient(headers=own, timeout=120) as client,
            httpx.AsyncClient(timeout=120) as outside,
        ):
            whole = asyncio.create_task(client.post(url, json=body))
            stream = asyncio.create_task(streamed(client, url, body))
            await running(endpoint, 2)
            await engine.advance(1)
            task = asyncio.create_task(
                outside.post(f"{endpoint.sessions.url}/rollcast/v1/sessions", headers=run)
            )
            await asyncio.sleep(1.0)
            await asyncio.to_thread(endpoint.server.stop)
            for answer in (await whole, await task):
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "ending"
            last = (await stream).strip().splitlines()[-1]
            assert json.loads(last.removeprefix("data: "))["error"]["code"] == "ending"
        session.note_end("its server is gone")
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
    logged = capfd.readouterr().err
    assert "Traceback" not in logged, logged
