"""The generator's side: rollouts of a taskset, which verifiers plays in one process of their
virtual environment.
"""

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.harness.helper import TracedHelper, TracedRollout
from rollcast.environments.harness.interpreter import adapter_command
from rollcast.environments.verifiers import adapter


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """An answer of the model, as verifiers recorded it."""

    digest: str
    parent_index: int | None
    """Index of the answer before it in its conversation. None = it is the first."""
    is_trained: bool
    """Whether a branch of the trace that verifiers trains has it."""


@dataclass(frozen=True, slots=True)
class VerifiersTrace:
    """The record that verifiers made of a rollout."""

    reward: float | None
    """The taskset's own value, not checked."""
    stop_condition: str
    """The stop condition; empty = none."""
    answers: tuple[TracedMessage, ...]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """The taskset's own numbers, not checked."""


class VerifiersRollout(TracedRollout):
    """A started rollout."""

    package: ClassVar[str] = "verifiers"

    def trace(self) -> VerifiersTrace | None:
        """None = it has not ended, or has failed.

        Raises EnvironmentFailedError if the process sent something else.
        """
        if "answers" not in self._answer:
            return None
        try:
            answers = tuple(
                TracedMessage(
                    str(record[0]),
                    None if record[1] is None else operator.index(record[1]),
                    bool(record[2]),
                )
                for record in self._answer["answers"]
            )
            metrics = dict(self._answer["metrics"])
            return VerifiersTrace(
                self._answer["reward"], str(self._answer["stop_condition"] or ""), answers, metrics
            )
        except (LookupError, TypeError, ValueError) as error:
            raise EnvironmentFailedError("its process sent an invalid trace") from error


class VerifiersHelper(TracedHelper[VerifiersRollout]):
    """The process of one environment of the run file."""

    def __init__(self, settings: VerifiersEnvironment, variables: Mapping[str, str]) -> None:
        """`variables`: its process gets them in addition to those of the user."""
        loading = {"taskset": settings.taskset, "arguments": settings.arguments}
        command = adapter_command(settings.interpreter, adapter, "serve")
        super().__init__(
            VerifiersRollout, command, variables, loading, "the taskset", settings.reset_seconds
        )

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> VerifiersRollout:
        """Begin a rollout of a row in a session. Raises EnvironmentFailedError."""
        fields = json.loads(row)
        if "task" not in fields:
            raise EnvironmentFailedError(
                "its row has no field `task`; write the data set by python -m "
                "rollcast.environments.verifiers"
            )
        endpoint_fields = {name: described[name] for name in ("model", "base_url", "token")}
        return await self.play({"task": fields["task"], **endpoint_fields})
