"""An environment inside the test's process, and a chat format in which any tokens are a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollcast.chat.base import AssistantTurn, ChatMessage, ToolCall
from rollcast.environments.base import EnvironmentFailedError, Opening, ToolResult, ToolSchema
from testkit.tiny_model import CHARACTERS

TOOLS: tuple[ToolSchema, ...] = (
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},
)


def characters(text: str) -> list[int]:
    """Tokens of a text, one for each character that the tiny tokenizer has."""
    # Token of the first of CHARACTERS
    return [3 + CHARACTERS.index(letter) for letter in text.lower() if letter in CHARACTERS]


@dataclass
class AnyTokensRenderer:
    """Implements ChatRenderer: what a turn says is a function of its tokens, so that a random model
    calls tools.

    `calls`: how many; `splits`: whether the next turn cannot extend it.
    """

    calls: Callable[[Sequence[int]], int]
    splits: Callable[[Sequence[int]], bool] = lambda tokens: False
    stop_token_ids: tuple[int, ...] = ()

    def prompt(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> list[int]:
        return [
            token
            for message in messages
            for token in characters(f"{message['role']}: {message['content']}\n")
        ]

    def parse(
        self, prompt_ids: Sequence[int], token_ids: Sequence[int], tools: Sequence[ToolSchema]
    ) -> AssistantTurn:
        calls = [ToolCall("look", {}) for _ in range(self.calls(token_ids))]
        return AssistantTurn(
            "".join(CHARACTERS[token % len(CHARACTERS)] for token in token_ids), calls=tuple(calls)
        )

    def next_turn(
        self,
        prompt_ids: Sequence[int],
        token_ids: Sequence[int],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
    ) -> list[int] | None:
        if self.splits(token_ids):
            return None
        return [
            token for message in messages for token in characters(f"tool: {message['content']}\n")
        ]


@dataclass
class ScriptedWorld:
    """Implements LiveEnvironment.

    `answer`: the n-th call of this episode; may raise, return nonsense, or wait.
    """

    answer: Callable[[int], ToolResult]
    seconds: Callable[[], float] = lambda: 0.0
    opening: Opening = field(default_factory=lambda: Opening(TOOLS))
    value: Any = 1.0
    """Value that `reward` returns, or exception that it raises."""
    own_numbers: Any = field(default_factory=dict)
    """Value that `metrics` returns, or exception that it raises."""
    num_calls: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        self.num_calls = 0
        self.rows.append(row)
        return self.opening

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.num_calls += 1
        number = self.num_calls
        await asyncio.sleep(self.seconds())
        return self.answer(number)

    async def reward(self) -> float | None:
        value: float | None = _value_or_raised(self.value)
        return value

    async def metrics(self) -> Mapping[Any, Any]:
        numbers: Mapping[Any, Any] = _value_or_raised(self.own_numbers)
        return numbers


def _value_or_raised(value: Any) -> Any:
    if isinstance(value, Exception):
        raise value
    return value


@dataclass
class ScriptedWorlds:
    """Implements Environments: worlds made on demand, used again when they are free."""

    make: Callable[[], ScriptedWorld]
    free: list[ScriptedWorld] = field(default_factory=list)
    ended_worlds: list[ScriptedWorld] = field(default_factory=list)
    in_use: int = 0
    most_in_use: int = 0
    refusals: int = 0
    """How many of the next `acquire` fail."""

    async def acquire(self, name: str) -> ScriptedWorld:
        if self.refusals:
            self.refusals -= 1
            raise EnvironmentFailedError("no process could be started")
        self.in_use += 1
        self.most_in_use = max(self.most_in_use, self.in_use)
        return self.free.pop() if self.free else self.make()

    async def release(self, environment: Any, *, is_reusable: bool) -> None:
        self.in_use -= 1
        (self.free if is_reusable else self.ended_worlds).append(environment)

    async def close(self) -> None:
        self.free.clear()
