"""A taskset of verifiers, which plays the rollouts in its own virtual environment."""

import json
from collections.abc import Iterator, Mapping

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.verifiers.helper import VerifiersHelper, VerifiersRollout
from rollcast.environments.verifiers.looking import find_missing_dependency


def missing(settings: VerifiersEnvironment, field: str) -> Iterator[str]:
    if (problem := find_missing_dependency(settings)) is not None:
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: VerifiersEnvironment, surroundings: Surroundings) -> "VerifiersPrograms":
    return VerifiersPrograms(settings, surroundings)


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
