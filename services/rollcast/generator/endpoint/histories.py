"""Which recorded turn a request continues. Clients send the history as text, the record has its
tokens.

Each recorded turn is known by a digest of the tools and messages up to its answer:

    tools -> user -> assistant -> tool -> assistant      a digest after each; the longest one that
                                                         is known wins

Left out of the digest is what clients drop or make up: ids of calls, and the reasoning. Some
clients send an answer in another form of the same tokens: with its stop text, or with its reasoning
in the content. So each turn is also known by a digest of all tokens up to its end. That is looked
for in the rendered history if the messages do not lead to a turn.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rollcast.chat.base import ChatMessage, ToolSchema
from rollcast.generator.endpoint.messages import read_arguments


@dataclass(eq=False)
class RecordedTurn:
    """One turn of the record, with what a client calls it."""

    number: int
    """Index in `EpisodeRecord.turns`."""
    history_digest: bytes
    """Digest of the history that it answers."""
    call_ids: tuple[str, ...]
    answered_at: float
    """Monotonic seconds."""
    parent_turn: int | None = None
    """Number of the turn that its history continues. None = no recorded one."""
    assistant_message: ChatMessage | None = None
    """The message that the client received. None = histories are given as tokens."""
    has_followers: bool = False
    """Whether a later request has it in its history."""
    is_extended: bool = False
    """Whether its sequence has tokens after it."""
    is_retry: bool | None = None
    """Whether the client library asked again because a request had failed. None = the library does
    not say."""
    is_abandoned: bool = False
    """Whether the client was gone before it had the answer."""


class Histories:
    """The recorded turns of one session."""

    def __init__(self) -> None:
        self.turns: list[RecordedTurn] = []
        self.call_arguments: dict[str, str] = {}
        """By the id of a call, its arguments as the model wrote them."""
        self._by_digest: dict[bytes, list[RecordedTurn]] = {}
        self._by_tokens: dict[int, dict[bytes, RecordedTurn]] = {}
        """By the number of tokens up to a turn's end, then by their digest: the newest turn."""

    def add(self, turn: RecordedTurn, token_ids: Sequence[int]) -> None:
        """Remember a turn under the history that ends with its answer; `token_ids`: all tokens up
        to its end.
        """
        self.turns.append(turn)
        content = np.asarray(token_ids, dtype=np.int64).tobytes()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        self._by_tokens.setdefault(len(token_ids), {})[digest] = turn
        if turn.assistant_message is not None:
            for call in turn.assistant_message.get("tool_calls") or ():
                self.call_arguments[call["id"]] = call["function"]["arguments"]
            (digest,) = history_digests([turn.assistant_message], None, turn.history_digest)
            self._by_digest.setdefault(digest, []).append(turn)

    def longest(
        self, digests: Sequence[bytes], messages: Sequence[ChatMessage]
    ) -> tuple[RecordedTurn, int] | None:
        """The recorded turn that most of the messages end with, and how many those are. None = none
        is recorded.

        `digests`: of `history_digests`. Among turns with the same history and answer it is the one
        with the same ids of calls, else the newest.
        """
        for count in range(len(messages), 0, -1):
            turns = self._by_digest.get(digests[count])
            message = messages[count - 1]
            if turns and message.get("role") == "assistant":
                ids = tuple(call.get("id") for call in message.get("tool_calls") or ())
                with_ids = [turn for turn in turns if ids and turn.call_ids == ids]
                return (with_ids or turns)[-1], count
        return None

    def longest_of_tokens(self, token_ids: Sequence[int]) -> tuple[RecordedTurn, int] | None:
        """The recorded turn with most tokens that the history begins with, and how many those are.

        Each token is read once. None = the history begins with no recorded turn.
        """
        content = np.asarray(token_ids, dtype=np.int64)
        digest = hashlib.blake2b(digest_size=16)
        longest_match = None
        start = 0
        for length in sorted(self._by_tokens):
            if length > len(content):
                break
            digest.update(content[start:length].tobytes())
            start = length
            turn = self._by_tokens[length].get(digest.digest())
            if turn is not None:
                longest_match = turn, length
        return longest_match

    def unread(self) -> list[RecordedTurn]:
        """Turns whose answer no client read: abandoned ones, and for each retry the one that it
        replaces.

        It replaces the newest turn of the same history that no later history has. A client that
        does not say whether it retries does so when it asks for the same history again.
        """
        unread = [turn for turn in self.turns if turn.is_abandoned and not turn.has_followers]
        pending: dict[bytes, list[RecordedTurn]] = {}
        for turn in self.turns:
            earlier = pending.setdefault(turn.history_digest, [])
            if earlier and turn.is_retry is not False:
                replaced_turn = earlier.pop()
                if not replaced_turn.is_abandoned:
                    unread.append(replaced_turn)
            if not turn.has_followers:
                earlier.append(turn)
        return sorted(unread, key=lambda turn: turn.number)

    def was_asked(self, digest: bytes) -> bool:
        """Whether this very history has been sampled before."""
        return any(turn.history_digest == digest for turn in self.turns)


def history_digests(
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSchema] | None,
    earlier_digest: bytes = b"",
) -> list[bytes]:
    """The digest of the tools, and one after each message.

    `tools`: None = the history before the messages, of which `earlier_digest` is, has them.
    """
    steps = list(messages)
    if tools is not None:
        tools_text = json.dumps([dict(tool) for tool in tools], sort_keys=True)
        steps.insert(0, {"content": tools_text})
    digests: list[bytes] = []
    for message in steps:
        digest = hashlib.blake2b(digests[-1] if digests else earlier_digest, digest_size=16)
        calls = [_call(call) for call in message.get("tool_calls") or ()]
        texts = [str(message.get(name) or "") for name in ("role", "content", "name")]
        # Long texts are hashed as they are: as JSON they would be copied several times.
        for text in (json.dumps(calls, sort_keys=True, ensure_ascii=True), *texts):
            content = text.encode("utf-8", "surrogatepass")
            # With its length, so that the border between two texts counts.
            digest.update(len(content).to_bytes(8, "big"))
            digest.update(content)
        digests.append(digest.digest())
    return digests


def _call(call: Mapping[str, Any]) -> list[Any]:
    # Parsed, because a client may send the same arguments with other spaces or in another order.
    function = call.get("function") or {}
    return [function.get("name"), read_arguments(function.get("arguments"))]
