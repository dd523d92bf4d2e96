"""Requests of one episode: budgets side by side, an early end, a stream while it is sampled, and
what is too large.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from rollcast.generator.base_sampler import Sampler
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import EpisodeEnd, LengthBudget
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import MAX_LENGTH, episode_task
from testkit.generator.harness_endpoint import (
    MODEL,
    ServedEndpoint,
    claim_next_session,
    make_client,
    served_endpoint,
)
from testkit.generator.scripted_engine import ScriptedEngine
from tests.generator.claiming import V1

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600)]
"""The first test to import vLLM waits for it, on a busy machine for minutes."""
USER = {"role": "user", "content": "go on"}
BUDGET = 100
UNLUCKY = 666
"""The scripted engine refuses a prompt that begins with it."""


class Played:
    """An episode under way, whose requests the test makes and whose tokens it lets the engine
    sample.
    """

    def __init__(
        self, endpoint: ServedEndpoint, session: HarnessSession, client: Any, sampler: Sampler
    ) -> None:
        self.endpoint = endpoint
        self.session = session
        self.sampler = sampler
        self._client = client

    def ask(
        self, messages: list[Any], max_tokens: int | None = None, **options: Any
    ) -> asyncio.Task[Any]:
        asked = self._client.chat.completions.create(
            model=MODEL,
            messages=messages,
            **{"max_tokens": max_tokens} if max_tokens else {},
            **options,
        )
        return asyncio.create_task(asked)

    async def begun_stream(self, messages: list[Any], max_tokens: int, **options: Any) -> Any:
        """A stream whose first token is sampled."""
        asked = self.ask(messages, max_tokens, stream=True, **options)
        await self.sampling(1)
        async with asyncio.timeout(120):
            while not asked.done():
                await self.endpoint.engine.advance(1)
        return asked.result()

    async def sampling(self, count: int) -> None:
        async with asyncio.timeout(120):
            while self.endpoint.engine.num_running < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def answer(self, asked: asyncio.Task[Any]) -> dict[str, Any]:
        async with asyncio.timeout(120):
            while not asked.done():
                await self.endpoint.engine.advance(1)
        message: dict[str, Any] = asked.result().choices[0].message.model_dump(exclude_none=True)
        return message


@asynccontextmanager
async def playing(max_seconds: float = 60.0) -> AsyncIterator[Played]:
    engine: Any = ScriptedEngine()
    await engine.apply(V1)
    async with served_endpoint(engine, {"restarts": 0}, calls=lambda tokens: 0) as endpoint:
        sampler = endpoint.sampler(
            episode_task(1, 1, LengthBudget(max_tokens=BUDGET), max_seconds=max_seconds)
        )
        running = asyncio.create_task(sampler.run())
        session = await claim_next_session(endpoint)
        session.note_reward(1.0)
        async with make_client(endpoint, session, timeout=120.0) as client:
            yield Played(endpoint, session, client, sampler)
        session.note_end("")
        await asyncio.wait_for(running, 120)


async def test_what_is_given_to_one_request_leaves_the_others_their_tokens() -> None:
    import openai  # a second, which collection saves

    async with playing() as episode:
        first = await episode.answer(episode.ask([USER], 10))
        beside = episode.ask([USER, USER], 50)
        await episode.sampling(1)
        further = episode.ask([USER, first, {"role": "user", "content": "x" * 30}], 30)
        await episode.sampling(2)
        await episode.answer(further)
        await episode.answer(beside)
        with pytest.raises(openai.BadRequestError, match="budget of tokens is used up"):
            await episode.ask([USER])
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.TOKENS
    assert [turn.end - turn.start for turn in rollout.episode.turns][0::2] == [10, 50]
    assert sum(len(sequence.token_ids) for sequence in rollout.sequences) == BUDGET


async def test_a_turn_that_the_end_of_its_program_cuts_is_not_trained() -> None:
    async with playing() as episode:
        await episode.answer(episode.ask([USER], 10))
        cut = episode.ask([USER, USER, USER])
        await episode.sampling(1)
        await episode.endpoint.engine.advance(5)
        episode.session.note_end("")
        await asyncio.wait({cut}, timeout=120)
        assert cut.done()
        unread = episode.endpoint.count(episode_metrics.ENDPOINT_UNREAD)
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert [(turn.start, turn.end) for turn in rollout.episode.turns] == [(0, 10)]
    assert not rollout.episode.branches
    assert unread == 1


async def test_a_request_whose_client_left_uses_up_no_budget() -> None:
    async with playing() as episode:
        await episode.answer(episode.ask([USER], 10))
        left = episode.ask([USER, USER])
        await episode.sampling(1)
        left.cancel()
        async with asyncio.timeout(120):
            while episode.endpoint.engine.num_running or episode.session.num_open_requests:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "closed the connection" in episode.session.last_refusal
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.TOKENS, "its last turn had 10 tokens at most"
    assert episode.session.exceeded_budget is None
    assert not rollout.episode.branches


async def test_samples_of_one_history_beside_each_other_are_all_trained() -> None:
    async with playing() as episode:
        asked = [episode.ask([USER], 10) for _ in range(3)]
        await episode.sampling(3)
        for one in asked:
            await episode.answer(one)
        await episode.answer(episode.ask([USER, USER], 10))
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 1, 2, 3]
    assert episode.endpoint.count(episode_metrics.ENDPOINT_UNREAD) == 0


async def test_a_turn_goes_on_when_a_wait_of_another_request_moves_the_episodes_end() -> None:
    async with playing(max_seconds=15.0) as episode:
        episode.session.clock.deadline = time.monotonic() + 5.0
        asked = episode.ask([USER], 40)
        await episode.sampling(1)
        first_end = episode.session.clock.deadline
        episode.session.clock.deadline = first_end + 600.0
        await asyncio.sleep(first_end - time.monotonic() + 0.5)
        await episode.answer(asked)
        turn = episode.session.record.turns[-1]
        assert turn.end - turn.start == 40
        episode.session.clock.deadline = time.monotonic() + 0.5
        cut = episode.ask([USER, USER], 40)
        await asyncio.wait({cut}, timeout=120)
        assert cut.done()
    assert episode.session.exceeded_budget is EpisodeEnd.SECONDS


async def test_the_reward_of_an_episode_whose_time_is_over_counts() -> None:
    import openai  # a second, which collection saves

    async with playing(max_seconds=1.0) as episode:
        episode.session.note_reward(None)
        cut = episode.ask([USER])
        await episode.sampling(1)
        await episode.endpoint.engine.advance(5)
        await asyncio.wait({cut}, timeout=120)
        assert len(cut.result().choices[0].message.content) > 0
        headers = {"authorization": f"Bearer {episode.session.token}"}
        url = f"{episode.endpoint.sessions.url}/rollcast/{episode.session.id}/reward"
        async with httpx.AsyncClient(headers=headers, timeout=60) as plain:
            assert (await plain.post(url, json={"reward": 0.5})).status_code == 200
        with pytest.raises(openai.BadRequestError, match="time is over"):
            await episode.ask([USER])
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.SECONDS
    assert episode.sampler.verdict is not None
    assert episode.sampler.verdict.reward == 0.5


async def test_a_prompt_that_the_engine_refuses_is_not_in_the_record() -> None:
    async with playing() as episode:
        headers = {"authorization": f"Bearer {episode.session.token}"}
        url = f"{episode.endpoint.sessions.url}/rollcast/{episode.session.id}/inference/v1/generate"
        async with httpx.AsyncClient(headers=headers, timeout=60) as plain:
            refused = await plain.post(url, json={"token_ids": [UNLUCKY, 1], "sampling_params": {}})
        assert refused.status_code == 400
        assert episode.session.record.sequences
        episode.session.note_end("no such token")
        async with asyncio.timeout(120):
            while not episode.sampler.finished:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    rollout = episode.sampler.rollout()
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.FAILED
    assert rollout.episode.prompt_token_ids is None


async def test_a_stream_arrives_while_its_turn_is_sampled() -> None:
    async with playing() as episode:
        stream = await episode.begun_stream([USER], 40)
        text = ""
        async with asyncio.timeout(120):
            while not text:
                part = asyncio.create_task(anext(stream))
                while not part.done():
                    await episode.endpoint.engine.advance(1)
                text = part.result().choices[0].delta.content or ""
                assert episode.endpoint.engine.num_running, "the text came with the turn's end"
        rest = asyncio.create_task(_read(stream))
        await episode.endpoint.engine.advance(40)
        text += await asyncio.wait_for(rest, 120)
        turn = episode.session.record.turns[-1]
        _, tokens = episode.session.record.turn_tokens(-1)
    assert turn.end - turn.start == 40
    assert text == episode.endpoint.parts.renderer.parse([], tokens, ()).content.strip()


async def test_tokens_come_with_the_end_of_a_stream() -> None:
    async with playing() as episode:
        ids = {"return_token_ids": True, "return_tokens_as_token_ids": True}
        stream = await episode.begun_stream([USER], 5, logprobs=True, extra_body=ids)
        rest = asyncio.create_task(_parts(stream))
        await episode.endpoint.engine.advance(5)
        last = (await asyncio.wait_for(rest, 120))[-1]
        before, tokens = episode.session.record.turn_tokens(-1)
    assert last.prompt_token_ids == before
    assert last.choices[0].token_ids == tokens
    assert [one.token for one in last.choices[0].logprobs.content] == [
        f"token_id:{token}" for token in tokens
    ]


async def _parts(stream: Any) -> list[Any]:
    return [part async for part in stream]


async def _read(stream: Any) -> str:
    return "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])


async def test_what_would_hold_up_the_engine_is_refused() -> None:
    import openai  # a second, which collection saves

    async with playing() as episode:
        first = await episode.answer(episode.ask([USER], 10))
        long = {"role": "tool", "tool_call_id": "1", "content": "x" * (64 * MAX_LENGTH + 1)}
        with pytest.raises(
            openai.BadRequestError, match=r"a chat of 3\d{4} characters leaves no room"
        ):
            await episode.ask([USER, first, long])
        tool = {"type": "function", "function": {"name": "look", "description": "x" * (1 << 20)}}
        with pytest.raises(
            openai.BadRequestError, match="tools: a request may have 1048576 characters"
        ):
            await episode.ask([USER], tools=[tool])
