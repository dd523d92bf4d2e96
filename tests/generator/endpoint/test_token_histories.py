"""Histories whose texts are not those that were sent, but whose tokens begin with the recorded
ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from rollcast.chat.base import AssistantTurn, ChatMessage
from rollcast.environments.base import ToolSchema
from rollcast.generator.endpoint.histories import Histories, RecordedTurn
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LengthBudget, Sampling
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, served_endpoint
from testkit.generator.played_sessions import check_exact, play_session
from testkit.generator.scripted_world import characters
from testkit.tiny_model import CHARACTERS
from tests.generator.conftest import SharedEngine, Versions

NUM_TURNS = 8
STOP = ["a", "e"]
USER = {"role": "user", "content": "what is in the room?"}


class LettersRenderer:
    """Implements ChatRenderer: a turn is the letters of its tokens, so that its text becomes the
    same tokens again.

    The first half of a turn is its reasoning if the session is about thinking.
    """

    stop_token_ids = ()

    def __init__(self) -> None:
        self.thinks = False

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        texts = [
            str(message["content"]) if message["role"] == "assistant" else turn_of(message)
            for message in messages
        ]
        return characters("".join(texts))

    def parse(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], tools: Sequence[ToolSchema]
    ) -> AssistantTurn:
        text = letters(token_ids)
        middle = len(text) // 2 if self.thinks else 0
        return AssistantTurn(text[middle:], reasoning=text[:middle])

    def next_turn(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        return characters("".join(map(turn_of, messages)))


def turn_of(message: ChatMessage) -> str:
    is_answer = message["role"] == "assistant"
    return str(message["content"]) if is_answer else f"\n{message['role']}: {message['content']}\n"


def letters(token_ids: Sequence[int]) -> str:
    # Other tokens have no letter: a turn with one of them does not become the same tokens again.
    return "".join(CHARACTERS[token - 3] for token in token_ids if 3 <= token < 3 + len(CHARACTERS))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    settings = {"reset_seconds": 60, "call_seconds": 60, "sampling": "run"}
    async with served_endpoint(versions.engine, settings) as served:
        served.parts.renderer = LettersRenderer()
        yield served


def with_stop_text(choice: Any) -> str:
    """As smolagents' CodeAgent sends an answer back: the text that ended it stands in it again."""
    last_letter = letters(choice.token_ids[-1:])
    content: str = choice.message.content
    return content + last_letter if last_letter in STOP else content


def with_thinking(choice: Any) -> str:
    """As clients send an answer that know nothing of reasoning: all that was sampled is its
    content.
    """
    return letters(choice.token_ids)


@pytest.mark.engine
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("sent", [with_stop_text, with_thinking])
async def test_an_answer_in_another_form_continues_its_sequence_if_its_tokens_are_the_same(
    versions: Versions, endpoint: ServedEndpoint, sent: Callable[[Any], str]
) -> None:
    begins_with_the_last = []
    endpoint.parts.renderer.thinks = sent is with_thinking  # type: ignore[attr-defined]

    async def program(client: Any, session: HarnessSession) -> None:
        messages: list[Any] = [USER]
        recorded: list[int] = []
        for step in range(NUM_TURNS):
            completion = await client.chat.completions.create(
                model=MODEL,
                messages=messages,
                max_tokens=6,
                stop=STOP,
                extra_body={"return_token_ids": True},
            )
            choice = completion.choices[0]
            begins_with_the_last.append(completion.prompt_token_ids[: len(recorded)] == recorded)
            recorded = [*completion.prompt_token_ids, *choice.token_ids]
            messages += [{"role": "assistant", "content": sent(choice)}, USER]
            await versions.apply(40 + step)

    # Seeded: otherwise the draw depends on the tests before this one, and one in ten has too few
    # answers of letters alone.
    task = replace(episode_task(61, 1, LengthBudget(max_tokens=400)), sampling=Sampling(seed=1))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    numbers = [turn.sequence for turn in rollout.episode.turns]
    continued = [True, *(number == before for before, number in itertools.pairwise(numbers))]
    assert continued == begins_with_the_last
    assert sum(continued) >= 3, "many answers have letters alone"


def longest_by_comparing(turns: list[list[int]], history: list[int]) -> list[int] | None:
    """The slow way: each turn with the beginning of the history."""
    return max((turn for turn in turns if history[: len(turn)] == turn), key=len, default=None)


def test_the_longest_recorded_turn_is_found_as_by_comparing_all() -> None:
    draw = random.Random(7)
    histories = Histories()
    recorded: list[list[int]] = []
    for number in range(200):
        begin = draw.choice(recorded)[: draw.randrange(1, 12)] if recorded else []
        tokens = [*begin, *draw.choices(range(3), k=draw.randrange(1, 6))]
        histories.add(RecordedTurn(number, b"", (), 0.0), tokens)
        recorded.append(tokens)
    for _ in range(500):
        history = [*draw.choice(recorded), *draw.choices(range(3), k=draw.randrange(3))][
            : draw.randrange(1, 16)
        ]
        expected = longest_by_comparing(recorded, history)
        match = histories.longest_of_tokens(history)
        assert (match is None) == (expected is None)
        if match is not None and expected is not None:
            turn, length = match
            assert (length, recorded[turn.number]) == (len(expected), expected)
            assert turn.number == max(
                number for number, tokens in enumerate(recorded) if tokens == expected
            )
