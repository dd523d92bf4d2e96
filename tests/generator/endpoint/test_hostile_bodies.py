"""Bodies of any shape up to the limit: refused or read within half a second of processor time and
little memory.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest

from rollcast.generator.endpoint.bodies import (
    MAX_DEPTH,
    count,
    measure,
    read_json,
)
from rollcast.generator.endpoint.protocol import read_request
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.rollouts.records import Sampling
from tests.generator.endpoint.hostile_bodies import check, measured

SAMPLING = Sampling(1.0, 1.0, 0, 7)
SOME = (
    *(
        "numbers",
        "a quarter of a megabyte of empty objects",
        "closed nesting",
        "ten thousand empty messages",
    ),
    *(
        "too many messages",
        "many text parts",
        "backslashes",
        "arguments of empty objects",
        "a long key",
    ),
    *(
        "arguments of letters as wide as one emoji",
        "one long number",
        "2,000 calls with their results",
    ),
    *("a tool with a large schema", "too many tokens"),
)
"""One of each way through the reader; test_all_hostile_bodies.py has them all."""


@functools.cache
def results() -> dict[str, dict[str, Any]]:
    return measured(SOME)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOME)
def test_a_body_takes_little(name: str) -> None:
    check(name, results()[name])


def refused(content: str) -> str:
    try:
        read_request(json.loads(content), "m", SAMPLING, replaces=True, is_retry=None)
    except RefusedRequestError as refusal:
        return f"{refusal.status} {refusal}"
    return ""


MESSAGES = {
    (
        '{"role": "user", "content": "q", "tool_calls": ["a"]}'
    ): "messages.0.tool_calls.0: is not an object",
    '{"role": "user", "content": "q", "tool_calls": "aaa"}': "messages.0.tool_calls: is not a list",
    (
        '{"role": "tool", "content": "q", "tool_calls": [[]]}'
    ): "messages.0.tool_calls.0: is not an object",
    (
        '{"role": "assistant", "tool_calls": [{}]}'
    ): "messages.0.tool_calls.0: is not an object with a function",
    (
        '{"role": "assistant", "tool_calls": [{"function": "f"}]}'
    ): "messages.0.tool_calls.0: is not an object with",
    (
        '{"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}'
    ): "messages.0.tool_calls.0: is not an object",
    (
        '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}'
    ): "is neither JSON as text",
    (
        '{"role": "assistant", "tool_calls": [{"id": 3, "function": {"name": "f"}}]}'
    ): "messages.0.tool_calls.0.id",
    '{"role": "assistant", "tool_calls": {"a": 1}}': "messages.0.tool_calls: is not a list",
    '"hello"': "messages.0: is not an object",
    "[]": "messages.0: is not an object",
    '{"content": "q"}': "messages.0.role: give a role",
    '{"role": 3, "content": "q"}': "messages.0.role: give a role",
    '{"role": "user", "content": 3}': "messages.0.content: only content that is text is served",
    '{"role": "user", "content": {"text": "x"}}': "messages.0.content: only content that is text",
    '{"role": "user", "content": ["x"]}': "messages.0.content: only content that is text",
    (
        '{"role": "user", "content": [{"type": "text"}]}'
    ): "messages.0.content: only content that is text",
    (
        '{"role": "user", "content": [{"type": "text", "text": 3}]}'
    ): "messages.0.content: only content that is text",
    (
        '{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}'
    ): "only content that is text",
    '{"role": "tool", "content": "q", "name": ["f"]}': "messages.0.name: is not text",
    '{"role": "tool", "content": "q", "tool_call_id": {}}': "messages.0.tool_call_id: is not text",
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_of_another_form_is_refused_with_its_place(message: str) -> None:
    said = refused(f'{{"messages": [{message}, {{"role": "user", "content": "q"}}]}}')
    assert said.startswith("400 ")
    assert MESSAGES[message] in said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tools", ["5", "true", '"look"', '{"a": 1}'])
def test_tools_that_are_no_list_are_refused(tools: str) -> None:
    said = refused(f'{{"messages": [{{"role": "user", "content": "q"}}], "tools": {tools}}}')
    assert said.startswith("400 tools")


RIGHT = {
    '{"role": "developer", "content": "be brief"}': {"role": "system", "content": "be brief"},
    '{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}': {
        "role": "user",
        "content": "ab",
    },
    '{"role": "user", "content": []}': {"role": "user", "content": ""},
    (
        '{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '
        '"{"}}]}'
    ): {
        "role": "assistant",
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
    },
    '{"role": "tool", "tool_call_id": "1", "content": "2", "own": {"x": [1]}}': {
        "role": "tool",
        "tool_call_id": "1",
        "content": "2",
        "own": {"x": [1]},
    },
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("message", RIGHT)
def test_right_messages_are_taken_as_they_were_sent(message: str) -> None:
    body = json.loads(f'{{"messages": [{message}, {{"role": "user", "content": "q"}}]}}')
    read = read_request(body, "m", SAMPLING, replaces=True, is_retry=None)
    assert read.messages[0] == RIGHT[message]


TEXTS: list[str] = [
    "[]",
    "{}",
    '{"a": [1, 2, {"b": ",[{"}]}',
    '["\\\\", "\\"", "\\\\\\"", ",\\\\"]',
    '[",", "[", "{", "a\\nb", "\\u005b"]',
    "[" * 50 + "]" * 50,
    json.dumps([[n, {"k": "x,y"}] for n in range(2_000)]),
    json.dumps(["\\" * n + '"' for n in range(300)]),
    json.dumps({"long": '"\\,[' * 400_000, "more": [1, 2, 3]}),
    json.dumps(["é,😀" * 100_000, {}]),
]


def slow_count(text: str) -> tuple[int, int, int]:
    """By a parser of characters."""
    containers = texts = commas = 0
    inside = escaped = False
    for sign in text:
        if inside:
            inside = escaped or sign != '"'
            escaped = sign == "\\" and not escaped
        elif sign == '"':
            inside = True
            texts += 1
        else:
            containers += sign in "[{"
            commas += sign == ","
    return containers, texts, commas


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_values_are_counted_as_a_parser_sees_them(text: str) -> None:
    counts = count(text.encode())
    assert (counts.containers, counts.texts, counts.commas) == slow_count(text)


def test_depth_and_characters_are_measured() -> None:
    nested: Callable[[int], str] = lambda depth: "[" * depth + "]" * depth  # noqa: E731
    assert measure(json.loads(nested(MAX_DEPTH))).depth <= MAX_DEPTH
    assert measure(json.loads(nested(MAX_DEPTH + 1))).depth > MAX_DEPTH
    assert measure("x" * 100).characters == 100
    assert 1_000 < measure({"key": ["x" * 1_000, 1, {"k": None}]}).characters < 1_100
    with pytest.raises(RefusedRequestError, match="not JSON"):
        read_json(b"[" * 100_000)


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"cut \ud83d", "cut ?"),
        (rb"\ude00 whole \ud83d\ude00\ude00", "? whole \U0001f600?"),
        (rb"\ud83d\ud83d\ude00", "?\U0001f600"),
        (rb"a path \\ud83d and \\\ud83d", r"a path \ud83d and \?"),
        (
            "wide 漢 ".encode() + b"x" * (300 << 10) + rb"\ud83d",
            "wide 漢 " + "x" * (300 << 10) + "?",
        ),
    ],
    ids=["first half", "second half", "three halves", "backslashes", "long and wide"],
)
def test_half_an_emoji_becomes_a_question_mark(sent: bytes, read: str) -> None:
    """Agents in JavaScript cut texts between the halves."""
    assert read_json(b'{"content": "' + sent + b'"}') == {"content": read}
