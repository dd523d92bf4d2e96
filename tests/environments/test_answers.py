"""What the process of an environment sends is checked by type and bounds where it enters the
generator.
"""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.environments.base import Opening, ToolResult
from rollcast.environments.python_processes.answers import (
    MAX_OFFERED_TOOLS,
    check_number,
    get_opening,
    get_reason,
    get_reward,
    get_tool_result,
)
from rollcast.environments.python_processes.instance import MAX_TEXT_CHARACTERS
from rollcast.processes.frames import FrameError

TOOL = {"type": "function", "function": {"name": "add"}}
RESULTS: list[dict[str, Any]] = [
    {},
    {"text": None},
    {"text": 3},
    {"text": ["x"]},
    {"text": "x" * (MAX_TEXT_CHARACTERS + 1_000)},
    {"text": "x", "malformed": "yes"},
    {"text": "x", "late": 1},
    {"text": "x", "cut": []},
    {"text": "x", "reward": {}},
    {"text": "x", "reward": "1"},
    {"text": "x", "reward": True},
    {"text": "x", "reward": [1.0]},
    {"text": "x", "reward": float("nan")},
    {"text": "x", "reward": float("-inf")},
    {"text": "x", "reward": 1_000.5},
    {"text": "x", "reward": 10**400},
]
OPENINGS: list[dict[str, Any]] = [
    {},
    {"tools": None},
    {"tools": {"a": 1}},
    {"tools": [1]},
    {"tools": [{"function": "add"}]},
    {"tools": [{"function": {"name": 3}}]},
    {"tools": [TOOL] * (MAX_OFFERED_TOOLS + 1)},
    {"tools": [TOOL], "opening": 3},
    {"tools": [TOOL], "opening": {"role": "user"}},
    {"tools": [TOOL], "opening": ["text"]},
    {"tools": [TOOL], "opening": [{"role": "user"}]},
    {"tools": [TOOL], "opening": [{"role": "user", "content": None}]},
]


@pytest.mark.parametrize("answer", RESULTS, ids=lambda answer: repr(answer)[:40])
def test_a_result_of_another_form_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        get_tool_result(answer, gives_rewards=True)


@pytest.mark.parametrize("answer", OPENINGS, ids=lambda answer: repr(answer)[:40])
def test_an_opening_of_another_form_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(FrameError):
        get_opening(answer)


@pytest.mark.parametrize("number", [None, True, 1.0, "1", 2, [1]])
def test_an_answer_to_another_request_is_refused(number: Any) -> None:
    check_number({"number": 1}, 1)
    with pytest.raises(FrameError):
        check_number({"number": number}, 1)


@pytest.mark.parametrize("reward", ["1", {}, False, 10**400])
def test_a_reward_that_is_no_number_is_refused(reward: Any) -> None:
    with pytest.raises(FrameError):
        get_reward({"reward": reward})


def test_right_answers_are_taken() -> None:
    assert get_tool_result({"text": "a\ud800"}, gives_rewards=True) == ToolResult("a?")
    rewarded = {"text": "x", "reward": -1_000, "malformed": True, "late": True, "cut": True}
    assert get_tool_result(rewarded, gives_rewards=True) == ToolResult(
        "x", is_malformed=True, reward=-1_000.0, is_overdue=True, is_cut=True
    )
    assert get_tool_result({"text": "x", "reward": {}}, gives_rewards=False) == ToolResult("x")
    assert get_opening({"tools": [TOOL], "opening": "hi"}) == Opening([TOOL], text="hi")
    message = {"role": "user", "content": "hi", "other": 1}
    assert get_opening({"tools": [], "opening": [message]}).messages == [
        {"role": "user", "content": "hi"}
    ]
    assert get_reward({"reward": 7}) == 7.0
    assert get_reward({}) is None
    assert get_reason({"failed": "a\n b" + "x" * 9_999}, "failed") == "a b" + "x" * 996
