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
            # TRL's convention: what `reset` returns belongs to the last message of the user.
            roles = [message["role"] for message in self.messages]
            if "user" not in roles:
                self.messages.append({"role": "user", "content": opening.text})
                return
            index = len(roles) - 1 - roles[::-1].index("user")
            content = f"{self.messages[index]['content']}{opening.text}"
            self.messages[index] = {**self.messages[index], "content": content}

    def add(
        self, turn: AssistantTurn, call_ids: Sequence[str], answers: Sequence[ChatMessage]
    ) -> None:
        """Add a turn of the model and the answers to its calls."""
        self.messages += [assistant_message(turn, call_ids), *answers]
