"""Traces of verifiers against records: which turns are trained, and what disagrees."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.environments.verifiers.adapter import answer_digest
from rollcast.environments.verifiers.helper import TracedMessage, VerifiersTrace
from rollcast.environments.verifiers.join import untrained_turns
from rollcast.generator.endpoint.histories import RecordedTurn

CALL = {"id": "call00000", "function": {"name": "look", "arguments": "{}"}}


def turn(number: int, parent_turn: int | None, assistant_message: Any) -> RecordedTurn:
    return RecordedTurn(number, b"", (), 0.0, parent_turn, assistant_message)


def traced(
    content: str, parent_index: int | None, *calls: tuple[str, str, str], is_trained: bool = True
) -> TracedMessage:
    return TracedMessage(answer_digest(content, calls), parent_index, is_trained)


TURNS = [
    turn(0, None, {"content": "", "tool_calls": [CALL]}),
    turn(2, 0, {"content": "a door"}),
    turn(3, 0, {"content": "a summary"}),
]
FIRST = traced("", None, ("call00000", "look", "{}"))


def test_answers_in_any_order_are_joined_and_untrained_ones_named() -> None:
    trace = VerifiersTrace(
        1.0, "", (FIRST, traced("a summary", 0, is_trained=False), traced("a door", 0))
    )
    assert untrained_turns(TURNS, trace) == {3}


@pytest.mark.parametrize(
    "answers",
    [
        (FIRST, traced("a door", 0)),
        (FIRST, traced("a door", 0), traced("a summary", 0), traced("more", 0)),
        (FIRST, traced("a door", 0), traced("another", 0)),
        (FIRST, traced("a door", 0), traced("a summary", 1)),
        (
            traced("", None, ("call00001", "look", "{}")),
            traced("a door", 0),
            traced("a summary", 0),
        ),
        (FIRST, traced("a door", 2), traced("a summary", 0)),
    ],
    ids=["one-less", "one-more", "other-text", "other-branch", "other-call", "follows-a-later-one"],
)
def test_a_disagreement(answers: tuple[TracedMessage, ...]) -> None:
    assert untrained_turns(TURNS, VerifiersTrace(1.0, "", answers)) is None
