"""The chat of an episode as messages, from which a prompt is rendered again
when a sequence splits.
"""

import json
from collections.abc import Sequence

from rollcast.chat.base import AssistantTurn, ChatMessage
from rollcast.chat.messages import assistant_message, new_call_ids
from rollcast.environments.base import Opening


class Transcript:
    """`messages` so far, all of which the model has read or written."""

    def __init__(self, row_messages: str, opening: Opening) -> None:
        """`row_messages`: JSON text of the row's chat, which the environment's opening replaces or
        extends.
        """
        messages = json.loads(row_messages) if opening.messages is None else opening.messages
        self.messages: list[ChatMessage] = [dict(message) for message in messages]
        self.call_ids = new_call_ids()
        if opening.text:
            self._append_to_user(opening.text)

    def add(
        self, turn: AssistantTurn, call_ids: Sequence[str], answers: Sequence[ChatMessage]
    ) -> None:
        """Add a turn of the model and the answers to its calls."""
        self.messages += [assistant_message(turn, call_ids), *answers]

    def _append_to_user(self, text: str) -> None:
        """TRL's convention: what `reset` returns belongs to the last message of the user."""
        for index in reversed(range(len(self.messages))):
            if self.messages[index]["role"] == "user":
                content = str(self.messages[index]["content"])
                self.messages[index] = {**self.messages[index], "content": content + text}
                return
        self.messages.append({"role": "user", "content": text})
