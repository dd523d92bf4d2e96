"""What the generator asks of a renderer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

ToolSchema = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}."""
ChatMessage = Mapping[str, Any]
"""{role, content}; an assistant may have tool_calls and reasoning_content, a tool has name and
tool_call_id."""


class ChatRefusedError(Exception):
    """The model's chat format cannot write these messages.

    The message is one sentence with the format's own reason.
    """


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it."""

    name: str
    arguments: Mapping[str, Any]
    problem: str = ""
    """Why it cannot be called, in words for the model; empty = it can. A call that could not be
    read has no name."""
    raw: str = ""
    """The call's text as the model wrote it, without the marks around it."""


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """What sampled tokens say."""

    content: str
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()


class ChatRenderer(Protocol):
    """Renders and parses for one model. Thread-safe; fast enough for the event loop."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a turn of the assistant."""
        ...

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        """Tokens up to the beginning of the assistant's turn. Raises ChatRefusedError."""
        ...

    def parse(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], tools: Sequence[ToolSchema]
    ) -> AssistantTurn:
        """Read one turn of the assistant.

        Never raises: what cannot be read is a call with a `problem`, or content.
        """
        ...

    def next_turn(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        """The tokens to append to prompt and completion so that the assistant's next turn begins
        after `messages`.

        None = the model's format does not let the next turn extend these tokens; the episode
        splits.
        """
        ...
