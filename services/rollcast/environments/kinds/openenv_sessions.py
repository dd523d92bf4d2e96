"""Harness sessions of OpenEnv, each in a process of its own virtual environment."""

import json
from collections.abc import Iterator, Mapping

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_function
from rollcast.environments.openenv_sessions.helper import (
    OpenEnvHelper,
    OpenEnvRollout,
    OpenEnvTrace,
)
from rollcast.environments.openenv_sessions.join import traced_loss
from rollcast.environments.openenv_sessions.looking import find_missing_dependency
from rollcast.environments.traces import (
    SampledRecord,
    TraceDisagreementError,
    TracedLoss,
    UnusableTraceError,
)


def missing(settings: OpenEnvSessionEnvironment, field: str) -> Iterator[str]:
    yield from missing_function(f"{field}.factory", settings.factory)
    if (problem := find_missing_dependency(settings)) is not None:
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: OpenEnvSessionEnvironment, surroundings: Surroundings) -> "OpenEnvPrograms":
    return OpenEnvPrograms(settings, surroundings)


def join(record: SampledRecord, trace: OpenEnvTrace) -> TracedLoss:
    """Raises UnusableTraceError."""
    loss = traced_loss(record, trace)
    if loss is None:
        raise TraceDisagreementError(
            f"has {len(trace.calls)} calls of the model in its trace, which are not among the "
            f"{record.num_turns} that were sampled for it"
        )
    if record.num_turns and len(loss.untrained) == record.num_turns:
        raise UnusableTraceError(f"has a trace that trains none of the {record.num_turns} turns")
    # Stretches without loss of one episode. The record of a sequence has room for 65,536.
    max_ranges = 10_000
    if sum(map(len, loss.masked.values())) > max_ranges:
        raise UnusableTraceError(f"has loss masks of more than {max_ranges} parts")
    return loss


class OpenEnvPrograms:
    """Sessions of one factory."""

    def __init__(self, settings: OpenEnvSessionEnvironment, surroundings: Surroundings) -> None:
        self._helper = OpenEnvHelper(settings, surroundings.variables)

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> OpenEnvRollout:
        """Begin a session. Raises EnvironmentFailedError."""
        return await self._helper.start(json.loads(row), described, sampling)

    async def close(self) -> None:
        await self._helper.close()
