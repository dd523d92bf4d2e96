"""Answers that no client read are not trained: of closed streams, and of requests that a client
library repeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LengthBudget
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, make_client, served_endpoint
from testkit.generator.played_sessions import answer_calls, check_exact, play_session
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

USER = {"role": "user", "content": "what is in the room?"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    settings = {"reset_seconds": 60, "call_seconds": 60}
    async with served_endpoint(versions.engine, settings, stop_token_ids=(5, 17)) as served:
        yield served


async def test_a_stream_that_its_client_closes_is_not_trained(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    was_closed_in_time = False

    async def program(client: Any, session: HarnessSession) -> None:
        nonlocal was_closed_in_time
        asked = {"model": MODEL, "max_tokens": 40, "messages": [USER]}
        stream = await client.chat.completions.create(**asked, stream=True)
        await stream.__anext__()
        await stream.close()
        async with asyncio.timeout(60):
            while session.num_open_requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        turns = session.histories.turns
        was_closed_in_time = bool(turns) and turns[-1].is_abandoned
        await client.chat.completions.create(**asked)

    for number in range(
        50
    ):  # a short answer is sampled and sent before its client has closed the stream
        unread = endpoint.count(episode_metrics.ENDPOINT_UNREAD)
        task = episode_task(number, 1, LengthBudget(max_tokens=384))
        _, rollout = await play_session(endpoint, task, program)
        if was_closed_in_time:
            break
    assert was_closed_in_time, "no stream was closed while it was sampled"
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert len(rollout.episode.turns) == 1
    assert endpoint.count(episode_metrics.ENDPOINT_UNREAD) == unread + 1


class LosingTransport(httpx.AsyncHTTPTransport):
    """Loses the first answer, as a connection that breaks in between does."""

    num_lost = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        if self.num_lost:
            return response
        self.num_lost += 1
        await response.aread()
        await response.aclose()
        raise httpx.ReadError("the connection broke")


async def test_a_retry_leaves_a_completion_that_is_not_trained(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    unread = endpoint.count(episode_metrics.ENDPOINT_UNREAD)

    async def program(client: Any, session: HarnessSession) -> None:
        first = await client.chat.completions.create(model=MODEL, max_tokens=40, messages=[USER])
        messages = [USER, *answer_calls(first.choices[0].message)]
        transport = LosingTransport()
        retrying = {"max_retries": 1, "http_client": httpx.AsyncClient(transport=transport)}
        async with make_client(endpoint, session, **retrying) as library:
            read = await library.chat.completions.create(
                model=MODEL, max_tokens=40, messages=messages
            )
        assert transport.num_lost == 1
        await client.chat.completions.create(
            model=MODEL, max_tokens=40, messages=[*messages, *answer_calls(read.choices[0].message)]
        )

    task = episode_task(4, 1, LengthBudget(max_tokens=384))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert len(rollout.episode.turns) == 3
    assert endpoint.count(episode_metrics.ENDPOINT_UNREAD) == unread + 1
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 1, 1]
    assert len(rollout.token_ids) == rollout.episode.turns[0].end, (
        "the lost answer is not in the first sequence"
    )
