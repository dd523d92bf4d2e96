"""Harness sessions of OpenEnv, each in a process of its own virtual environment."""

import json
from collections.abc import Iterator, Mapping

from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_function
from rollcast.environments.openenv_sessions.helper import OpenEnvHelper, OpenEnvRollout
from rollcast.environments.openenv_sessions.looking import find_missing_dependency


def missing(settings: OpenEnvSessionEnvironment, field: str) -> Iterator[str]:
    yield from missing_function(f"{field}.factory", settings.factory)
    if (problem := find_missing_dependency(settings)) is not None:
        yield f"{field}.interpreter = {settings.interpreter}: {problem}"


def start(settings: OpenEnvSessionEnvironment, surroundings: Surroundings) -> "OpenEnvPrograms":
    return OpenEnvPrograms(settings, surroundings)


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
