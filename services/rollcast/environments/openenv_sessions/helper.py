"""The generator's side: harness sessions of OpenEnv, each in a process of its own that the adapter
forks.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.config.function_loading import absolute
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.harness.helper import TracedHelper, TracedRollout
from rollcast.environments.harness.interpreter import adapter_command
from rollcast.environments.openenv_sessions import adapter


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call of the model, as the session's TrainingTrace has it."""

    digest: str
    """Digest of all tokens before the call, and its own."""
    masked: tuple[tuple[int, int], ...]
    """Ranges of its own tokens that carry no loss."""


@dataclass(frozen=True, slots=True)
class OpenEnvTrace:
    """The results of a session."""

    reward: float | None
    """The score that `verify` forwarded, not checked; None = it has no score."""
    is_late: bool
    """Whether its agent was stopped by a time limit of its own."""
    calls: tuple[TracedCall, ...]
    metrics: Mapping[str, Any]
    """Numbers of `verify`, not checked."""


class OpenEnvRollout(TracedRollout):
    """A started session."""

    package: ClassVar[str] = "OpenEnv"

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""
        code = self._answer.get("exit", 0)
        return super().how_it_failed or (
            f"has an agent that ended with exit code {code}" if code else ""
        )

    @property
    def last_lines(self) -> str:
        """Why it failed."""
        return super().last_lines or (
            "see the session's own log" if self._answer.get("exit") else ""
        )

    def trace(self) -> OpenEnvTrace | None:
        """None = it has not ended, or has failed.

        Raises EnvironmentFailedError if the process sent something else.
        """
        if "calls" not in self._answer:
            return None
        try:
            calls = tuple(
                TracedCall(str(digest), tuple((int(start), int(end)) for start, end in masked))
                for digest, masked in self._answer["calls"]
            )
            metrics = dict(self._answer["metrics"])
            return OpenEnvTrace(self._answer["reward"], bool(self._answer["late"]), calls, metrics)
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise EnvironmentFailedError("its process sent an invalid trace") from error


class OpenEnvHelper(TracedHelper[OpenEnvRollout]):
    """The process of one environment of the run file."""

    def __init__(self, settings: OpenEnvSessionEnvironment, variables: Mapping[str, str]) -> None:
        """`variables`: its process gets them in addition to those of the user."""
        loading = {"factory": absolute(settings.factory), "arguments": settings.arguments}
        command = adapter_command(settings.interpreter, adapter, "serve")
        super().__init__(
            OpenEnvRollout, command, variables, loading, "the factory", settings.reset_seconds
        )

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> OpenEnvRollout:
        """Begin a session for a row. Raises EnvironmentFailedError.

        Its task is the field `task` of the row, else the row; its seed is the field `seed`.
        """
        fields = json.loads(row)
        endpoint_fields = {name: described[name] for name in ("model", "base_url", "token")}
        return await self.play(
            {
                "task": fields.get("task", fields),
                "seed": fields.get("seed"),
                "episode": described["session"],
                "sampling": dict(sampling),
                **endpoint_fields,
            }
        )
