"""Settings of an environment of the package `openenv`."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rollcast.config.base import WEB_ADDRESS
from rollcast.config.environments.settings import EnvironmentSettings


class OpenEnvEnvironment(EnvironmentSettings):
    repeats_last_reward: ClassVar[bool] = True

    kind: Literal["openenv"] = "openenv"
    """A server of OpenEnv: its actions are the tools, its observations the answers, its rewards the
    reward."""
    url: Annotated[str, Field(pattern=WEB_ADDRESS)]
    """Address of the server."""
    interpreter: Path
    """Python of the virtual environment in which `openenv` is installed: its clients run there."""
