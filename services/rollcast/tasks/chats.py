"""Prompts that are chats: lists of messages, as TRL's and verl's data sets hold them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from rollcast.tasks.fields import Row, RowError, checked_text, text, value

Role = Literal["system", "user", "assistant"]
MAX_MESSAGES = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


Chat = tuple[Message, ...]
"""The last message is by the user; a prompt of plain text is one message."""


def make_chat(prompt: str) -> Chat:
    """The chat that a prompt of plain text is."""
    return (Message("user", prompt),)


def chat(row: Row, name: str) -> Chat:
    """A field that holds text, or a list of messages. Raises RowError."""
    field_value = value(row, name)
    if not isinstance(field_value, list):
        return make_chat(text(row, name))
    messages = tuple(
        _message(item, f"field {name!r}, message {number}")
        for number, item in enumerate(field_value, start=1)
    )
    if not messages or len(messages) > MAX_MESSAGES or messages[-1].role != "user":
        end = f"that ends with one by the {messages[-1].role}" if messages else "that is empty"
        raise RowError(
            f"field {name!r} holds a chat of {len(messages)} messages {end}; needs 1 to "
            f"{MAX_MESSAGES}, the last by the user; leave out what is to be answered"
        )
    return messages


def _message(item: Any, where: str) -> Message:
    role = item.get("role") if isinstance(item, dict) else None
    if role not in get_args(Role):
        raise RowError(
            f"{where} is by {role!r}, needs a mapping with role system, user or assistant, and "
            "content; leave it out"
        )
    content = item.get("content")
    if isinstance(content, list):
        content = "".join(_part(content_part, where) for content_part in content)
    if not isinstance(content, str) or not content:
        raise RowError(f"{where} has no text as its content; fix or remove the row")
    return Message(cast(Role, role), checked_text(content, where))


def _part(content_part: Any, where: str) -> str:
    """Text of a message in parts, as vision models have them."""
    if (
        isinstance(content_part, dict)
        and content_part.get("type", "text") == "text"
        and isinstance(content_part.get("text"), str)
    ):
        return cast(str, content_part["text"])
    kind = (
        content_part.get("type") if isinstance(content_part, dict) else type(content_part).__name__
    )
    raise RowError(f"{where} holds a part of type {kind!r}, and only text is read; remove the row")


def flat(messages: Sequence[Message]) -> str:
    """The contents alone, for models without a chat template."""
    return "\n\n".join(message.content for message in messages)


def with_last(messages: Chat, template: str) -> Chat:
    """The chat with `template` around its last message; `{prompt}` marks the place."""
    return (*messages[:-1], Message("user", template.replace("{prompt}", messages[-1].content)))
