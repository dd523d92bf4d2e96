"""A taskset of verifiers, which plays the rollouts in its own virtual environment."""

import json
from collections.abc import Iterator, Mapping

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.traces import SampledRecord, TraceDisagreementError, TracedLoss
from rollcast.environments.verifiers.helper import (
    VerifiersHelper,
    VerifiersRollout,
    VerifiersTrace,
)
from rollcast.environments.verifiers.join import STOPS, untrained_turns
from rollcast.environments.verifiers.looking import find_missing_dependency


def missing(settings: VerifiersEnvironment, field: str) -> Iterator[str]:
    if (problem := find_missing_dependency(settings)) is not None:
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: VerifiersEnvironment, surroundings: Surroundings) -> "VerifiersPrograms":
    return VerifiersPrograms(settings, surroundings)


def join(record: SampledRecord, trace: VerifiersTrace) -> TracedLoss:
    """Raises TraceDisagreementError."""
    untrained = untrained_turns(record.read_turns, trace)
    if untrained is None:
        raise TraceDisagreementError(
            f"has {len(trace.answers)} answers of the model in its trace, which are not the "
            f"{len(record.read_turns)} that were sampled for it"
        )
    return TracedLoss(frozenset(untrained), end=STOPS.get(trace.stop))


class VerifiersPrograms:
    """Rollouts of one taskset, all in one process."""

    def __init__(self, settings: VerifiersEnvironment, surroundings: Surroundings) -> None:
        self._helper = VerifiersHelper(settings, surroundings.variables)

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> VerifiersRollout:
        """Begin a rollout. Raises EnvironmentFailedError."""
        return await self._helper.start(json.loads(row), described)

    async def close(self) -> None:
        await self._helper.close()
