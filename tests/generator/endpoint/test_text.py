"""Parts of a stream, and histories as clients send them back: functions of text,
without an engine.
"""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.generator.endpoint.histories import Histories, RecordedTurn, history_digests
from rollcast.generator.endpoint.protocol import turn_limits
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.streaming import Deltas

USER = {"role": "user", "content": "what is in the room?"}


def streamed(
    prefixes: list[str], final: str, stop: tuple[str, ...] = (), *, has_tools: bool
) -> list[str]:
    """The parts of a content whose turn was parsed after each of the prefixes."""
    deltas = Deltas(stop, has_tools=has_tools)
    parts = [part for text in prefixes for part in deltas.sendable_parts("", text, has_calls=False)]
    return [part["content"] for part in [*parts, *deltas.take_new_parts("", final)]]


@pytest.mark.parametrize(
    ("prefixes", "final", "has_tools", "parts"),
    [
        (["a", "a door", "a door."], "a door.", True, ["a", " door", "."]),
        ([" ", " a", " a d "], "a d", True, ["a", " d"]),
        (["so <tool", "so <tool_call>{"], "so", True, ["so"]),
        (["2 <", "2 < 3"], "2 < 3", True, ["2", " < 3"]),
        (["caf\ufffd", "café"], "café", False, ["caf", "é"]),
    ],
    ids=["words", "stripped", "call", "no-call", "half-a-character"],
)
def test_parts_are_the_message(
    prefixes: list[str], final: str, has_tools: bool, parts: list[str]
) -> None:
    found = streamed(prefixes, final, has_tools=has_tools)
    assert found == parts
    assert "".join(found) == final


def test_the_beginning_of_a_stop_text_is_held_back() -> None:
    prefixes = [
        "look O",
        "look Obs",
        "look Obi",
        "look Obi\nObserv",
        "look Obi\nObservation: a door",
    ]
    assert streamed(prefixes, "look Obi", ("Observation:", "\nObs"), has_tools=False) == [
        "look",
        " Obi",
    ]


def call(arguments: str, call_id: str = "call00000") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": "look", "arguments": arguments},
            }
        ],
    }


def test_what_clients_change_of_a_message_does_not_matter() -> None:
    histories = Histories()
    answer = call('{"a": 1, "b": 2}')
    turn = RecordedTurn(
        0, history_digests([USER], ())[-1], ("call00000",), 0.0, assistant_message=answer
    )
    histories.add(turn, [])
    sent = [
        USER,
        {**call('{"b":2,"a":1}', "own"), "content": None, "reasoning": "x"},
        {"role": "tool", "content": "y"},
    ]
    assert histories.longest(history_digests(sent, ()), sent) == (turn, 2)
    other = [USER, call('{"a": 2}')]
    assert histories.longest(history_digests(other, ()), other) is None
    tools = [{"type": "function", "function": {"name": "look"}}]
    assert histories.longest(history_digests(sent, tools), sent) is None, (
        "other tools are another history"
    )


def test_stop_texts_are_bounded() -> None:
    assert turn_limits({}) == (None, ())
    assert turn_limits({"stop": "end"}) == (None, ("end",))
    for wrong in ("", ["a"] * 5, [""], [1], {"a": 1}, ["a" * 201]):
        with pytest.raises(RefusedRequestError, match="at most 4 texts"):
            turn_limits({"stop": wrong})


ASKED_AGAIN = [
    ("1 1 1", "nnn", [0, 1]),
    ("1 1 1", "---", []),
    ("1 1 1", "--r", [1]),
    ("1 1 1 1", "-r-r", [0, 2]),
    ("1 2 1 2", "nnnn", [0, 1]),
    ("1f 1 2", "nnn", []),
    ("1a 1", "-r", [0]),
    ("1 1a 1", "--r", [1]),
    ("1 1a", "--", [1]),
]
"""Histories, f = a later one has its answer, a = abandoned; n = the client does not say, - no
retry, r a retry."""


@pytest.mark.parametrize(("histories", "retries", "unread"), ASKED_AGAIN)
def test_a_retry_replaces_one_turn_and_samples_beside_each_other_are_read(
    histories: str, retries: str, unread: list[int]
) -> None:
    found = Histories()
    for number, (history, retry) in enumerate(zip(histories.split(), retries, strict=True)):
        says = None if retry == "n" else retry == "r"
        turn = RecordedTurn(
            number, history[:1].encode(), (), 0.0, is_retry=says, is_abandoned="a" in history
        )
        turn.has_followers = "f" in history
        found.add(turn, [])
    assert [turn.number for turn in found.unread()] == unread
