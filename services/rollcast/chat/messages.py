"""A turn of the assistant as a message of the chat, for a prompt that is rendered again after a
split.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from rollcast.chat.base import AssistantTurn, ChatMessage


def new_call_ids() -> Iterator[str]:
    """Ids for the calls of one chat.

    Nine letters and digits, because Mistral's template takes no others.
    """
    return (f"call{number:05}" for number in itertools.count())


def call_message(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call as a message of the assistant has it; its arguments are a JSON text or an object."""
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def assistant_message(turn: AssistantTurn, call_ids: Sequence[str]) -> ChatMessage:
    """The message; calls that could not be read are part of its content, as the model wrote them.

    call_ids: one for each call of the turn.
    """
    unreadable = [call.raw for call in turn.calls if not call.name and call.raw]
    calls = [
        call_message(call_id, call.name, json.dumps(call.arguments, ensure_ascii=False))
        for call_id, call in zip(call_ids, turn.calls, strict=True)
        if call.name
    ]
    message: dict[str, object] = {
        "role": "assistant",
        "content": "\n".join([turn.content, *unreadable]).strip(),
    }
    if turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if calls:
        message["tool_calls"] = calls
    return message
