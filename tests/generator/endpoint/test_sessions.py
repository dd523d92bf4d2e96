"""The endpoint with the `openai` client and a real engine: what is recorded is what was sampled, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from rollcast.generator.endpoint.session import Session
from rollcast.generator.episodes.sampler import EpisodeSampler
from rollcast.rollouts.records import EpisodeEnd, LegKind, LengthBudget, PromptTask, Rollout
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, client_of, served_endpoint, taken
from testkit.generator.scripted_world import TOOLS
from testkit.replay import replay_logprobs
from tests.generator.conftest import Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

TOLERANCE = 1e-4
STOP_TOKENS = (5, 17)
USER = {"role": "user", "content": "what is in the room?"}
Program = Callable[[Any, Session], Awaitable[None]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(versions: Versions) -> AsyncIterator[ServedEndpoint]:
    await versions.apply(1)
    settings = {"reset_seconds": 60, "call_seconds": 60}
    async with served_endpoint(versions.engine, settings, stop_token_ids=STOP_TOKENS) as served:
        yield served


async def played(endpoint: ServedEndpoint, task: PromptTask, program: Program) -> tuple[EpisodeSampler, Rollout]:
    """An episode whose turns a coroutine takes, as an outside program that then reports its end."""
    sampler = endpoint.sampler(task)
    running = asyncio.create_task(sampler.run())
    session = await taken(endpoint)
    async with client_of(endpoint, session) as client:
        await program(client, session)
    session.ended = ""
    await asyncio.wait_for(running, 60)
    await endpoint.engine.observe()
    return sampler, sampler.rollout()


def check_exact(versions: Versions, rollout: Rollout, task: PromptTask) -> None:
    """Every sampled token is replayed by plain Hugging Face; given ones have no loss."""
    assert rollout.episode is not None
    for sequence in rollout.sequences:
        prompt = rollout.prompt_of(sequence, task.prompt_token_ids).tolist()
        replayed = replay_logprobs(sequence, prompt, versions.weights, versions.model)
        assert abs(replayed - sequence.logprobs).max() < TOLERANCE
        given = tuple((leg.start, leg.end) for leg in sequence.legs if leg.kind is LegKind.GIVEN)
        assert sequence.loss_masked == given
    sampled = sum(leg.end - leg.start for one in rollout.sequences for leg in one.legs if leg.kind is not LegKind.GIVEN)
    assert sampled == sum(turn.end - turn.start for turn in rollout.episode.turns)


def answered(message: Any, text: str = "a door") -> list[Any]:
    """The assistant's message as a client sends it back, and the answers to its calls."""
    sent = message.model_dump(exclude_none=True)
    return [
        sent,
        *({"role": "tool", "tool_call_id": call["id"], "content": text} for call in sent.get("tool_calls", ())),
    ]


async def test_the_history_that_a_client_sends_back_is_recognised(versions: Versions, endpoint: ServedEndpoint) -> None:
    async def program(client: Any, session: Session) -> None:
        messages: list[Any] = [USER]
        for step in range(4):
            completion = await client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS)
            choice = completion.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert choice.message.tool_calls[0].function.name == "look"
            messages += answered(choice.message, f"door {step}")
            await versions.apply(10 + step)
        assert [one.id async for one in client.models.list()] == [MODEL]

    task = episode_task(1, 1, LengthBudget(max_tokens=300))
    _, rollout = await played(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.DONE
    assert not rollout.episode.branches
    assert len(rollout.episode.turns) == 4
    assert len(rollout.version_spans) >= 3
