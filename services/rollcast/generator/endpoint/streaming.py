"""The part of an unfinished turn that can be streamed: no later token turns it into a call or a
mark of thinking.

A turn is parsed as a whole, from its first token. Its text is sent up to the first character with
which a call or a mark may begin; the rest is sent with the turn's end, and so are its calls.
"""

from collections.abc import Sequence
from typing import Any

MARKS = "<[{`|"
"""With one of them begins whatever is not plain text: `<tool_call>`, `[TOOL_CALLS]`, a bare object,
a fence."""


class Deltas:
    """The parts of one streamed turn."""

    def __init__(self, stop: Sequence[str] = (), *, has_tools: bool) -> None:
        """`stop`: texts that end the turn and are not in its message."""
        self._stop = stop
        self._has_tools = has_tools
        self._reasoning = ""
        self._content = ""

    def sendable_parts(
        self, reasoning: str, content: str, *, has_calls: bool
    ) -> list[dict[str, Any]]:
        """The parts of an unfinished turn that can be sent now."""
        if has_calls:
            return []
        content = content.strip()  # as in the message
        if not content:
            return self.take_new_parts(self._sendable_prefix(reasoning), "")
        # A call may follow, and the message has no space before it.
        return self.take_new_parts(
            reasoning, self._sendable_prefix(self._before_stop(content)).rstrip()
        )

    def _before_stop(self, text: str) -> str:
        """The text before a stop text, or before what may be the beginning of one."""
        for stop in self._stop:
            text = text.partition(stop)[0]
        partial_stop_sizes = [
            size
            for stop in self._stop
            for size in range(1, len(stop))
            if text.endswith(stop[:size])
        ]
        return text[: len(text) - max(partial_stop_sizes, default=0)]

    def _sendable_prefix(self, text: str) -> str:
        text = text.rstrip("\ufffd")  # the bytes of a character that has not ended
        positions = [text.find(mark) for mark in MARKS] if self._has_tools else [text.rfind("<")]
        mark_positions = [position for position in positions if position >= 0]
        if not mark_positions:
            return text
        first = min(mark_positions)
        # Without tools there are marks of thinking only, none of which is longer
        return text if not self._has_tools and len(text) - first > 32 else text[:first]

    def take_new_parts(self, reasoning: str, content: str) -> list[dict[str, Any]]:
        """The parts of both texts that were not sent: all that is left of a turn that has ended.

        A text that was read differently before is not sent further.
        """
        parts: list[dict[str, Any]] = []
        if reasoning.startswith(self._reasoning) and len(reasoning) > len(self._reasoning):
            parts.append({"reasoning": reasoning[len(self._reasoning) :]})
            self._reasoning = reasoning
        if content.startswith(self._content) and len(content) > len(self._content):
            parts.append({"content": content[len(self._content) :]})
            self._content = content
        return parts
