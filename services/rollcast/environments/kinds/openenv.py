"""A server of OpenEnv, through clients in its own virtual environment."""

import shutil
from collections.abc import Iterator

from rollcast.config.environments.openenv import OpenEnvEnvironment
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.openenv.processes import OpenEnvSessions


def missing(settings: OpenEnvEnvironment, field: str) -> Iterator[str]:
    if shutil.which(settings.interpreter) is None:
        yield (
            f"{field}.interpreter = {settings.interpreter}: is no program; give the python of the "
            "virtual environment in which openenv is installed"
        )


def start(settings: OpenEnvEnvironment, surroundings: Surroundings) -> OpenEnvSessions:
    return OpenEnvSessions(settings)
