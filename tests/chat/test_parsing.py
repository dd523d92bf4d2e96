"""What sampled tokens say: calls that can be made, and calls whose problem the model can read."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pytest

from rollcast.chat.base import AssistantTurn, ChatRenderer
from rollcast.chat.calls import (
    MAX_ARGUMENT_VALUES,
    MAX_CALLS_PER_TURN,
    MAX_PROBLEM_CHARACTERS,
    Toolbox,
)
from rollcast.chat.make import make_renderer
from rollcast.config.model import Model
from testkit.chat_tokenizers import END_OF_TURN, Kind, make_chat_tokenizer

GENEROUS_SECONDS = 20.0
"""A parser that takes time in the square of the length needs far longer."""
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "most": {"type": "integer", "minimum": 1},
                "parts": {"type": "array", "uniqueItems": True},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    },
}
KINDS: tuple[Kind, ...] = ("qwen3", "llama_3", "chatml")
MARKS: dict[Kind, tuple[str, str, str]] = {
    "qwen3": ("<tool_call>\n", "\n</tool_call>", "arguments"),
    "llama_3": ("", "", "parameters"),
    "chatml": ("<call>", "</call>", "arguments"),
}


@cache
def served(kind: Kind) -> tuple[Any, ChatRenderer]:
    tokenizer = make_chat_tokenizer(kind)
    return tokenizer, make_renderer(Model(path="/model"), tokenizer)


def parsed(kind: Kind, text: str, *, is_ended: bool = True) -> AssistantTurn:
    tokenizer, renderer = served(kind)
    prompt = renderer.prompt([{"role": "user", "content": "question"}], [SEARCH])
    written = tokenizer.encode(
        text + (END_OF_TURN[kind] if is_ended else ""), add_special_tokens=False
    )
    return renderer.parse(prompt, written, [SEARCH])


def called(kind: Kind, name: str, arguments: str) -> str:
    before, behind, key = MARKS[kind]
    return f'{before}{{"name": "{name}", "{key}": {arguments}}}{behind}'


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_read(kind: Kind) -> None:
    (call,) = parsed(kind, called(kind, "search", '{"query": "日本", "most": 3}')).calls
    assert (call.name, call.arguments, call.problem) == ("search", {"query": "日本", "most": 3}, "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("find", "{}", "There is no tool 'find'; the tools are: search."),
        (
            "search",
            '{"query": 1}',
            "The arguments of search do not fit its schema: 1 is not of type 'string' (at query).",
        ),
        (
            "search",
            "{}",
            "The arguments of search do not fit its schema: 'query' is a required property.",
        ),
        ("search", '{"query": "a", "most": 0}', "less than the minimum of 1 (at most)"),
        ("search", '{"query": "a", "parts": [{"b": 1}, {"b": 1}]}', "not unique"),
        (
            "search",
            '{"query": "a", "more": NaN}',
            "NaN, Infinity and halves of surrogate pairs are not allowed",
        ),
        (
            "search",
            '{"query": "\\ud800"}',
            "NaN, Infinity and halves of surrogate pairs are not allowed",
        ),
        ("search", '["query"]', "The arguments of search are not a JSON object; write one."),
    ],
)
def test_a_call_that_cannot_be_made_says_why(
    kind: Kind, name: str, arguments: str, said: str
) -> None:
    (call,) = parsed(kind, called(kind, name, arguments)).calls
    assert call.name == name
    assert said in call.problem


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "arguments", ['{"query": "a"', '{"query": }', "[" * 5_000, "9" * 10_000, '{"query": "a"}}}}']
)
def test_a_call_that_is_no_json_has_no_name_and_says_so(kind: Kind, arguments: str) -> None:
    (call,) = parsed(kind, called(kind, "search", arguments)).calls
    assert (call.name, call.arguments) == ("", {})
    assert call.problem.startswith("The call could not be read: ")


def test_a_call_without_end_or_name_is_told() -> None:
    (cut,) = parsed(
        "qwen3", '<tool_call>\n{"name": "search", "arguments": {"query', is_ended=False
    ).calls
    assert cut.problem == "The call could not be read: its end is missing."
    (cut,) = parsed(
        "chatml", '<call>{"name": "search", "arguments": {"query": "a"}}', is_ended=False
    ).calls
    assert cut.problem == "The call could not be read: </call> is missing behind it."
    for kind in KINDS[::2]:
        before, behind, _ = MARKS[kind]
        (nameless,) = parsed(kind, f"{before}{{}}{behind}").calls
        assert nameless.problem == "The call could not be read: it has no name."


@pytest.mark.parametrize("kind", KINDS)
def test_text_and_thinking_are_no_calls(kind: Kind) -> None:
    turn = parsed(kind, 'The set {"a": 1} has one element.')
    assert (turn.content, turn.calls) == ('The set {"a": 1} has one element.', ())
    if kind != "llama_3":  # whose calls are JSON without marks
        assert parsed(kind, '{"name": "Ada", "age": 36}').calls == ()
        draft = called(kind, "search", "{}")
        turn = parsed(kind, f"<think>\nI could write {draft}\n</think>\n\nNo.")
        assert (turn.content, turn.calls) == ("No.", ())
        assert draft in turn.reasoning
        open_thought = parsed(kind, f"<think>\nI could write {draft}", is_ended=False)
        assert open_thought.content == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "[" * 150_000,
        '{"name": "search", "arguments": ' + "[" * 100_000,
        '{"a":' * 20_000,
        "<tool_call>" * 10_000 + "<call>" * 10_000,
        '<call>{"name": "search", "arguments": {"query": "a"}}</call>' * 2_000,
        '<tool_call>{"name": "search", "arguments": {"query": "a"}}</tool_call>' * 2_000,
        "<think>" * 20_000,
        "</think>" * 20_000,
        "<parameter=" * 9_000,
        '{"name": "search", "parameters": {"query": "a", "parts": [' + "1," * 50_000 + "2]}}",
    ],
    ids=lambda text: text[:12],
)
def test_a_flood_of_marks_is_read_in_bounded_time_and_size(kind: Kind, text: str) -> None:
    begun = time.monotonic()
    turn = parsed(kind, text)
    assert time.monotonic() - begun < GENEROUS_SECONDS
    assert len(turn.calls) <= MAX_CALLS_PER_TURN + 1
    assert all(len(call.problem) <= MAX_PROBLEM_CHARACTERS for call in turn.calls)


@pytest.mark.parametrize("kind", ["qwen3", "chatml"])
def test_more_calls_than_a_turn_may_have_are_one_problem(kind: Kind) -> None:
    turn = parsed(kind, called(kind, "search", '{"query": "a"}') * 1_000)
    assert len(turn.calls) == MAX_CALLS_PER_TURN + 1
    assert not any(call.problem for call in turn.calls[:-1])
    assert (
        turn.calls[-1].problem == "The turn has 1000 calls; those after the first 32 were not made."
    )


def test_arguments_are_bounded_in_number_and_depth() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"in": deep}
    for arguments, said in (
        ({"parts": [0] * MAX_ARGUMENT_VALUES}, "more than 10000 values"),
        (deep, "64 deep"),
    ):
        call = Toolbox([SEARCH]).call("search", arguments, "")
        assert said in call.problem
        assert call.arguments == {}


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "no type"},
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "#"},
        {"pattern": "("},
        None,
        "text",
    ],
)
def test_a_broken_schema_lets_the_tool_judge(parameters: Any) -> None:
    tool = {"type": "function", "function": {"name": "search", "parameters": parameters}}
    assert Toolbox([tool]).call("search", {"query": "a"}, "").problem == ""
