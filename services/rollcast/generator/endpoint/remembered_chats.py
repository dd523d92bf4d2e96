"""Chats of one session that a client may continue by an id instead of sending them again."""

from typing import Any

from rollcast.generator.endpoint.bodies import measure

Chat = list[dict[str, Any]]


class RememberedChats:
    """The newest chats by their ids, within bounds: each may hold a whole body."""

    def __init__(self) -> None:
        self._chats: dict[str, tuple[Chat, int]] = {}

    def get(self, chat_id: str) -> Chat | None:
        """None = it was not remembered, or is too old."""
        chat, _ = self._chats.get(chat_id, (None, 0))
        return chat

    def add(self, chat_id: str, chat: Chat) -> None:
        """Remember a chat, and forget the oldest ones beyond 64 chats or 8 million characters; the
        newest one stays.
        """
        self._chats[chat_id] = (chat, measure(chat).characters)
        while len(self._chats) > 1 and (
            len(self._chats) > 64 or sum(size for _, size in self._chats.values()) > 8_000_000
        ):
            del self._chats[next(iter(self._chats))]
