"""The protocols by which the generator uses an environment, wherever it runs.

    acquire -> reset(row) -> call, call, ... -> reward -> release        one episode
       `---- EnvironmentFailedError: released, the episode begins again or is given up

An environment serves one episode after another, never two together. Every wait has a deadline.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MAX_CALL_REWARD = 1_000.0
"""Either sign. Far above any that is meant; a turn of many calls stays below the trainer's own
limit of a million."""

ToolSchema = Mapping[str, Any]
"""{"type": "function", "function": {"name", "description", "parameters"}}, as chat templates take
it."""


class EnvironmentFailedError(Exception):
    """The environment itself failed: it hangs, died, or raised without the fault of the model.

    The message is one sentence with the cause. Such an episode is never trained as a 0.
    """

    def __init__(
        self, reason: str, *, is_overdue: bool = False, is_of_another: bool = False
    ) -> None:
        """is_overdue: it did not answer before its deadline. is_of_another: another episode made it
        fail.
        """
        super().__init__(reason)
        self.is_overdue = is_overdue
        self.is_of_another = is_of_another


@dataclass(frozen=True, slots=True)
class Opening:
    """The result of `reset`."""

    tools: Sequence[ToolSchema]
    text: str | None = None
    """Appended to the last user message. None = nothing."""
    messages: Sequence[Mapping[str, str]] | None = None
    """{role, content} each, in place of the row's chat. None = the row's chat stays."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The answer to one tool call."""

    text: str
    is_malformed: bool = False
    """No such tool, or arguments that it does not take: the text says so to the model."""
    reward: float | None = None
    """The reward of this turn alone. None = the environment does not reward turns."""
    is_done: bool = False
    """Whether the environment ended the episode."""
    is_overdue: bool = False
    """The call exceeded its deadline: the text says so to the model."""
    is_cut: bool = False
    """Whether the text was shortened to a limit."""


class LiveEnvironment(Protocol):
    """One environment that serves an episode. Every method raises EnvironmentFailedError."""

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Begin an episode with the row of its prompt."""

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. A mistake of the model is an answer, never an exception."""

    async def reward(self) -> float | None:
        """The reward of the episode in [0, 1]. None = the verifier rewards."""
        return None

    async def metrics(self) -> Mapping[Any, Any]:
        """The environment's own numbers of the episode by name, not checked.

        Empty = it gives no number.
        """
        return {}


class Environments(Protocol):
    """The environments of one generator."""

    async def acquire(self, name: str) -> LiveEnvironment:
        """An environment of `tasks.environments` that is free, or a new one.

        Raises EnvironmentFailedError.
        """

    async def release(self, environment: LiveEnvironment, *, is_reusable: bool) -> None:
        """Give it back after an episode.

        Not reusable: it is ended, with every process that it started.
        """

    async def close(self) -> None:
        """End all."""
