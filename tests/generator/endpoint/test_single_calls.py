"""Calls without a session: answered with the run's token, by the weights of the moment, and never
trained.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio

from rollcast.rollouts.records import Rollout, VersionSpan
from rollcast.telemetry import episode_metrics
from testkit.generator.harness_endpoint import (
    MAX_SINGLE_TOKENS,
    MODEL,
    MOST_SINGLE_CALLS,
    ServedEndpoint,
    served_endpoint,
)
from testkit.generator.scripted_engine import ScriptedEngine
from testkit.replay import replay_logprobs
from tests.generator.claiming import V1
from tests.generator.conftest import SharedEngine, Versions

if TYPE_CHECKING:
    from openai import AsyncOpenAI

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

TOKEN = "of the run"
USER: Any = {"role": "user", "content": "what is in the room?"}
ASKED: Any = {"model": MODEL, "messages": [USER]}
TOLERANCE = 1e-4


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    async with served_endpoint(
        versions.engine, {}, stop_token_ids=(5, 17), run_token=TOKEN
    ) as served:
        yield served


def client_with(endpoint: ServedEndpoint, token: str) -> AsyncOpenAI:
    import openai  # a second, which collection saves

    return openai.AsyncOpenAI(
        base_url=f"{endpoint.sessions.url}/v1", api_key=token, max_retries=0, timeout=60
    )


async def test_it_is_answered_by_the_newest_weights(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    await versions.apply(2)
    async with client_with(endpoint, TOKEN) as client:
        assert [model.id for model in (await client.models.list()).data][:1] == [MODEL]
        body = {"return_token_ids": True}
        whole: Any = await client.chat.completions.create(**ASKED, logprobs=True, extra_body=body)
        text = ""
        async for part in await client.chat.completions.create(**ASKED, stream=True):
            text += "".join(choice.delta.content or "" for choice in part.choices)
    choice = whole.choices[0]
    assert 0 < len(choice.token_ids) <= MAX_SINGLE_TOKENS
    assert (
        endpoint.parts.renderer.parse([], choice.token_ids, ()).content.strip()
        == choice.message.content
    )
    assert text
    rollout = Rollout(
        0,
        np.asarray(choice.token_ids, dtype=np.int32),
        np.asarray([one.logprob for one in choice.logprobs.content], dtype=np.float32),
        version_spans=(VersionSpan(max(versions.weights), 0, len(choice.token_ids)),),
    )
    replayed = replay_logprobs(rollout, whole.prompt_token_ids, versions.weights, versions.model)
    assert abs(replayed - rollout.logprobs).max() < TOLERANCE
    assert endpoint.count(episode_metrics.ENDPOINT_SINGLE_TOKENS) >= len(choice.token_ids)
    assert not endpoint.sessions._sessions, "nothing is kept"


async def test_it_needs_the_runs_token_and_its_sampling(endpoint: ServedEndpoint) -> None:
    import openai  # a second, which collection saves

    async with client_with(endpoint, "guessed") as stranger:
        with pytest.raises(openai.AuthenticationError, match="send it as the API key"):
            await stranger.chat.completions.create(**ASKED)
    async with client_with(endpoint, TOKEN) as client:
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await client.chat.completions.create(**ASKED, temperature=0.3)
        with pytest.raises(openai.NotFoundError, match="not served"):
            await client.completions.create(model=MODEL, prompt="hello")
    async with (
        served_endpoint(endpoint.engine, {}) as without_token,
        client_with(without_token, "any") as client,
    ):
        with pytest.raises(openai.AuthenticationError, match="ROLLCAST_HTTP_TOKEN"):
            await client.chat.completions.create(**ASKED)
    assert not endpoint.sessions._sessions, "refused ones are closed too"


async def test_only_some_at_once_and_those_whose_clients_leave_are_closed() -> None:
    import openai  # a second, which collection saves

    engine: Any = ScriptedEngine()
    async with (
        served_endpoint(engine, {}, run_token=TOKEN) as endpoint,
        client_with(endpoint, TOKEN) as client,
    ):
        with pytest.raises(openai.APIStatusError, match="no weights now"):
            await client.chat.completions.create(**ASKED)
        await engine.apply(V1)
        asked = [
            asyncio.create_task(client.chat.completions.create(**ASKED))
            for _ in range(MOST_SINGLE_CALLS)
        ]
        async with asyncio.timeout(60):
            while engine.num_running < MOST_SINGLE_CALLS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            with pytest.raises(
                openai.APIStatusError, match="2 calls without a session are under way"
            ):
                await client.chat.completions.create(**ASKED)
            assert [model.id for model in (await client.models.list()).data][:1] == [MODEL], (
                "it takes no place"
            )
            for call in asked:
                call.cancel()
            while engine.num_running or endpoint.sessions._sessions:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            last = asyncio.create_task(client.chat.completions.create(**ASKED))
            while not last.done():
                await engine.advance(MAX_SINGLE_TOKENS)
        assert (await last).choices[0].finish_reason == "length"
        engine.failed = True
        with pytest.raises(openai.APIStatusError, match="no weights now"):
            await client.chat.completions.create(**ASKED)
