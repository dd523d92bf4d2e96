"""Settings of an environment that is a class of the user's own."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import OWN_CLASS
from rollcast.config.environments.settings import EnvironmentSettings, Profile


class ClassEnvironment(EnvironmentSettings):
    kind: Literal["class"] = "class"
    """A class as TRL's `environment_factory` takes it: `reset(**row)`, public methods as tools,
    `get_reward()`."""
    code: Annotated[str, Field(pattern=OWN_CLASS)]
    """`./world.py:Calculator`, a file and a class in it, `package.module:Class`, or the name of an
    entry point in the group `rollcast.environments`. Looked up in the folder in which the command
    was started."""
    profile: Profile = "compute"
    """Permissions of the environment's process (docs/sandbox.md). `compute`: compute only.
    `folder`: a private folder and processes, no network. `trusted`: everything that you can."""
