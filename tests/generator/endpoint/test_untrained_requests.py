"""Requests of an episode that are answered and never trained, with a real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LengthBudget
from testkit.generator.anthropic_client import AnthropicClient
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import (
    MODEL,
    MOST_SINGLE_CALLS,
    ServedEndpoint,
    served_endpoint,
)
from testkit.generator.played_sessions import check_exact, play_session
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

USER = {"role": "user", "content": "what is in the room?"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    settings = {"reset_seconds": 60, "call_seconds": 60, "sampling": "run"}
    async with served_endpoint(versions.engine, settings, stop_token_ids=(5, 17)) as served:
        yield served


async def test_requests_for_the_untrained_name_are_answered_and_use_no_budget(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    import openai

    async def program(client: Any, session: HarnessSession) -> None:
        first = await client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=5)
        for options in (
            {"model": f"{MODEL}-untrained"},
            {"model": MODEL, "extra_headers": {"x-rollcast-untrained": "1"}},
        ):
            title = await client.chat.completions.create(
                messages=[USER], max_tokens=20, temperature=0.5, **options
            )
            assert title.usage.completion_tokens <= 20
        anthropic = AnthropicClient(endpoint, session)
        assert (
            await anthropic.create(model=f"{MODEL}-untrained", messages=[USER])
        ).status_code == 200
        await anthropic.close()
        session.settings = session.settings.model_copy(update={"untrained_requests": 3})
        with pytest.raises(openai.BadRequestError, match="3 untrained requests are used up"):
            await client.chat.completions.create(
                model=f"{MODEL}-untrained", messages=[USER], max_tokens=2
            )
        assert session.num_open_requests == 0
        assert len(session.record.turns) == 1
        assert first.choices

    task = episode_task(43, 1, LengthBudget(max_tokens=20))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert len(rollout.episode.turns) == 1


async def test_untrained_requests_wait_for_a_place_and_end_with_their_episode(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    import openai

    async def program(client: Any, session: HarnessSession) -> None:
        async def title(tokens: int) -> Any:
            return await client.chat.completions.create(
                model=f"{MODEL}-untrained", messages=[USER], max_tokens=tokens
            )

        await client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=3)
        answers = await asyncio.gather(*(title(3) for _ in range(3 * MOST_SINGLE_CALLS)))
        assert all(answer.choices for answer in answers)
        running = [asyncio.create_task(title(40)) for _ in range(2 * MOST_SINGLE_CALLS)]
        async with asyncio.timeout(60):
            while not session.num_open_requests:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        session.close()
        for ended in await asyncio.gather(*running, return_exceptions=True):
            assert not isinstance(ended, BaseException) or isinstance(ended, openai.NotFoundError)
        assert session.num_open_requests == 0

    task = episode_task(53, 1, LengthBudget(max_tokens=20))
    await play_session(endpoint, task, program)
    assert not endpoint.sessions._sessions, "nothing is kept"


async def test_an_episode_with_many_untrained_requests_leaves_places_to_others(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    num_requests = 6 * MOST_SINGLE_CALLS
    started = asyncio.Event()
    other_answered = asyncio.Event()
    answered_before: list[int] = []

    async def title(client: Any) -> Any:
        return await client.chat.completions.create(
            model=f"{MODEL}-untrained", messages=[USER], max_tokens=20
        )

    async def eager(client: Any, session: HarnessSession) -> None:
        await client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=3)
        requests = [asyncio.create_task(title(client)) for _ in range(num_requests)]
        async with asyncio.timeout(60):
            while session.num_open_requests <= MOST_SINGLE_CALLS:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            started.set()
            await other_answered.wait()
            answered_before.append(sum(request.done() for request in requests))
            assert all(answer.choices for answer in await asyncio.gather(*requests))

    async def other(client: Any, session: HarnessSession) -> None:
        await client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=3)
        await started.wait()
        await title(client)
        other_answered.set()

    limits = LengthBudget(max_tokens=20)
    await asyncio.gather(
        play_session(endpoint, episode_task(54, 1, limits), eager),
        play_session(endpoint, episode_task(55, 1, limits), other),
    )
    assert answered_before[0] < num_requests / 2
