"""The answers of an environment's process, checked by type and bounds as they enter the generator.

Code of a user, or of a model, may have written them. Every check raises FrameError.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from rollcast.environments.base import MAX_CALL_REWARD, Opening, ToolResult, ToolSchema
from rollcast.environments.python_processes.instance import MAX_TEXT_CHARACTERS
from rollcast.processes.frames import FrameError

MAX_OFFERED_TOOLS = 512

Value = TypeVar("Value")


def check_number(answer: Mapping[str, Any], number: int) -> None:
    """The answer is that of this request. Code of the model may write on a connection too."""
    # By exact type: True == 1 in Python.
    if type(answer.get("number")) is not int or answer["number"] != number:
        raise FrameError("an answer to another request")


def get_reason(answer: Mapping[str, Any], name: str) -> str | None:
    """Why something failed, in one line; None = the answer has no such field."""
    reason = answer.get(name)
    # Characters of a reason, which is logged and shown
    return None if reason is None else " ".join(_check_type(name, reason, str)[:1_000].split())


def get_flag(answer: Mapping[str, Any], name: str) -> bool:
    return _check_type(name, answer.get(name, False), bool)


def get_text(answer: Mapping[str, Any]) -> str:
    """The text of a call's answer."""
    text = _check_type("text", answer.get("text"), str)
    # Longest note about a cut, which is added to the text
    if len(text) > MAX_TEXT_CHARACTERS + 100:
        raise FrameError(f"a text of {len(text)} characters")
    return replace_surrogates(text)


def get_reward(answer: Mapping[str, Any]) -> float | None:
    """The reward of an episode; its bounds are the generator's. None = no reward."""
    reward = answer.get("reward")
    if reward is None:
        return None
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise FrameError(f"a reward that is not a number but {type(reward).__name__}")
    try:
        return float(reward)
    except OverflowError:
        raise FrameError("a reward of hundreds of digits") from None


def get_call_reward(answer: Mapping[str, Any]) -> float | None:
    """The reward of a call. None = no reward."""
    reward = get_reward(answer)
    if reward is not None and not abs(reward) <= MAX_CALL_REWARD:  # NaN is refused too
        raise FrameError(
            f"a reward of {reward:g} for a call, and {MAX_CALL_REWARD:g} of either sign is the most"
        )
    return reward


def get_metrics(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The numbers of an episode by name; their bounds are the generator's."""
    metrics = _check_type("set of metrics", answer.get("metrics"), dict)
    if len(metrics) > 1_000:  # looking at each would hold up the event loop
        raise FrameError(f"{len(metrics)} metrics")
    return metrics


def get_tool_result(answer: Mapping[str, Any], *, gives_rewards: bool) -> ToolResult:
    """gives_rewards: the environment's own code, as it was imported, rewards calls."""
    return ToolResult(
        get_text(answer),
        is_malformed=get_flag(answer, "malformed"),
        reward=get_call_reward(answer) if gives_rewards else None,
        is_overdue=get_flag(answer, "late"),
        is_cut=get_flag(answer, "cut"),
    )


def get_opening(answer: Mapping[str, Any]) -> Opening:
    """The opening that `reset` returned, with the tools of the environment."""
    tools = _get_tools(answer)
    opening = answer.get("opening")
    if opening is None:
        return Opening(tools)
    if isinstance(opening, str):
        return Opening(tools, text=replace_surrogates(opening))
    if not isinstance(opening, list):
        raise FrameError(f"an opening that is {type(opening).__name__}")
    # Messages of an opening: a hostile environment may send any number
    if len(opening) > 10_000 or not all(map(_is_message, opening)):
        raise FrameError(
            "an opening: reset returned a list that is not one of messages with role and content"
        )
    return Opening(
        tools,
        messages=[
            {name: replace_surrogates(message[name]) for name in ("role", "content")}
            for message in opening
        ],
    )


def replace_surrogates(text: str) -> str:
    """A text that every tokenizer takes: without halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _get_tools(answer: Mapping[str, Any]) -> Sequence[ToolSchema]:
    tools = answer.get("tools")
    if (
        not isinstance(tools, list)
        or len(tools) > MAX_OFFERED_TOOLS
        or not all(map(_is_schema, tools))
    ):
        raise FrameError(
            f"a list of tools that is not one of at most {MAX_OFFERED_TOOLS} descriptions"
        )
    return tools


def _is_schema(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _is_message(message: object) -> bool:
    return isinstance(message, dict) and all(
        isinstance(message.get(name), str) for name in ("role", "content")
    )


def _check_type(name: str, value: object, kind: type[Value]) -> Value:
    if not isinstance(value, kind):
        raise FrameError(f"a {name} that is not {kind.__name__} but {type(value).__name__}")
    return value
