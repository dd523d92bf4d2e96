"""The messages of a chat completion request, checked by form and count, as chat templates take
them.

Each refusal names the place. All work is bounded by the number of values that a body may have.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rollcast.chat.base import ChatMessage
from rollcast.generator.endpoint.bodies import MAX_DEPTH, bounded_integer, count, measure
from rollcast.generator.endpoint.refusals import RefusedRequestError

MAX_CALLS = 512
"""Tool calls of one message."""
MAX_ARGUMENT_VALUES = 150_000
"""Values in the arguments of all calls together, which come as JSON in texts."""


def read_messages(messages: Sequence[Any]) -> list[ChatMessage]:
    """Raises RefusedRequestError for content that is not text, and for invalid calls."""
    checked_messages: list[ChatMessage] = []
    num_values = 0
    for index, message in enumerate(messages):
        message_path = f"messages.{index}"
        if not isinstance(message, dict):
            raise RefusedRequestError(f"{message_path}: is not an object")
        checked_message = {key: value for key, value in message.items() if value is not None}
        role = checked_message.get("role")
        if not isinstance(role, str) or not role:
            raise RefusedRequestError(f"{message_path}.role: give a role as text")
        if role == "developer":  # OpenAI's newer name, which chat templates do not know
            checked_message["role"] = "system"
        for name in ("name", "tool_call_id", "reasoning_content", "refusal"):
            if not isinstance(checked_message.get(name, ""), str):
                raise RefusedRequestError(f"{message_path}.{name}: is not text")
        content = checked_message.get("content", "")
        if not isinstance(content, str):
            checked_message["content"] = _joined_parts(content, message_path)
        if "tool_calls" in checked_message:
            num_values += _check_calls(checked_message["tool_calls"], f"{message_path}.tool_calls")
        if num_values > MAX_ARGUMENT_VALUES:
            raise RefusedRequestError(
                f"{message_path}: tool calls have more than {MAX_ARGUMENT_VALUES:,} values"
            )
        checked_messages.append(checked_message)
    return checked_messages


def _joined_parts(content: object, message_path: str) -> str:
    """A content that comes in parts, as one text."""
    if not isinstance(content, list):
        raise RefusedRequestError(f"{message_path}.content: only content that is text is served")
    # Text parts of one message. Clients write one, or one for each file.
    max_parts = 1_000
    if len(content) > max_parts:
        raise RefusedRequestError(
            f"{message_path}.content: has more than {max_parts:,} parts; join them"
        )
    texts = part_texts(content, ("text",))
    if texts is None:
        raise RefusedRequestError(f"{message_path}.content: only content that is text is served")
    return texts[0] if len(texts) == 1 else "".join(texts)


def part_texts(content: Sequence[Any], kinds: Sequence[str]) -> list[str] | None:
    """The texts of a content that comes in parts of these kinds; None = it has others too."""
    texts = [
        content_part["text"]
        for content_part in content
        if isinstance(content_part, dict)
        and content_part.get("type") in kinds
        and isinstance(content_part.get("text"), str)
    ]
    return texts if len(texts) == len(content) else None


def _check_calls(calls: Any, calls_path: str) -> int:
    """The number of values in their arguments, at most."""
    if not isinstance(calls, list):
        raise RefusedRequestError(f"{calls_path}: is not a list")
    if len(calls) > MAX_CALLS:
        raise RefusedRequestError(f"{calls_path}: has more than {MAX_CALLS} calls")
    num_values = 0
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RefusedRequestError(
                f"{calls_path}.{index}: is not an object with a function and its name"
            )
        if not isinstance(call.get("id") or "", str):
            raise RefusedRequestError(f"{calls_path}.{index}.id: is not text")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            num_values += _num_values(arguments)
        elif not isinstance(arguments, Mapping | None):
            raise RefusedRequestError(
                f"{calls_path}.{index}.function.arguments: is neither JSON as text nor an object"
            )
    return num_values


def _num_values(text: str) -> int:
    """Not below the number of values in a JSON text.

    Signs inside of texts are only left out if there are many.
    """
    max_values = text.count(",") + text.count("[") + text.count("{")
    if max_values < MAX_ARGUMENT_VALUES // MAX_CALLS:
        return max_values
    counts = count(text.encode("utf-8", "replace"))
    return counts.commas + counts.containers


def read_arguments(arguments: Any) -> Any:
    """The arguments of a call as JSON has them; as they are if they are no JSON, too long or nested
    too deeply.
    """
    # Arguments of more characters stay a text: one emoji makes each of them four bytes, and reading
    # doubles that
    if not isinstance(arguments, str) or len(arguments) > (4 << 20):
        return arguments
    try:
        parsed_arguments = json.loads(arguments, parse_int=bounded_integer)
    except (ValueError, RecursionError):
        return arguments
    return arguments if measure(parsed_arguments).depth > MAX_DEPTH else parsed_arguments
