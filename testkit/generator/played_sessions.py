"""Episodes whose turns a test takes itself, through the endpoint, and what must hold of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rollcast.generator.base_sampler import Sampler
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LegKind, PromptTask, Rollout
from testkit.generator.harness_endpoint import ServedEndpoint, claim_next_session, make_client
from testkit.replay import replay_logprobs

TOLERANCE = 1e-4
Program = Callable[[Any, HarnessSession], Awaitable[None]]


async def play_session(
    endpoint: ServedEndpoint, task: PromptTask, program: Program, reward: float | None = 1.0
) -> tuple[Sampler, Rollout]:
    """An episode whose turns a coroutine takes, as an outside program that then reports its reward
    and its end.
    """
    sampler = endpoint.sampler(task)
    running = asyncio.create_task(sampler.run())
    session = await claim_next_session(endpoint)
    async with make_client(endpoint, session) as client:
        await program(client, session)
    session.note_reward(reward)
    session.note_end("")
    await asyncio.wait_for(running, 60)
    await endpoint.engine.observe()
    return sampler, sampler.rollout()


def check_exact(versions: Any, rollout: Rollout, task: PromptTask) -> None:
    """Every sampled token is replayed by plain Hugging Face; given ones have no loss."""
    assert rollout.episode is not None
    for sequence in rollout.sequences:
        prompt = rollout.sequence_prompt(sequence, task.prompt_token_ids).tolist()
        replayed = replay_logprobs(sequence, prompt, versions.weights, versions.model)
        assert abs(replayed - sequence.logprobs).max() < TOLERANCE
        given_spans = tuple(
            (leg.start, leg.end) for leg in sequence.legs if leg.kind is LegKind.GIVEN
        )
        assert sequence.loss_masked == given_spans
    sampled = sum(
        leg.end - leg.start
        for rollout_sequence in rollout.sequences
        for leg in rollout_sequence.legs
        if leg.kind is not LegKind.GIVEN
    )
    assert sampled == sum(turn.end - turn.start for turn in rollout.episode.turns)


def answer_calls(message: Any, text: str = "a door") -> list[Any]:
    """The assistant's message as a client sends it back, and the answers to its calls."""
    assistant_message = message.model_dump(exclude_none=True)
    return [
        assistant_message,
        *(
            {"role": "tool", "tool_call_id": call["id"], "content": text}
            for call in assistant_message.get("tool_calls", ())
        ),
    ]
