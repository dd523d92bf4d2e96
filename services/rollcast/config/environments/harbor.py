"""Settings of task folders in Harbor's format, played in containers."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.settings import Command, ProgramEnvironment


class HarborEnvironment(ProgramEnvironment):
    kind: Literal["harbor"] = "harbor"
    """Task folders in the format of Harbor 0.25: each episode plays one in a container of its own,
    and the task's tests give the reward."""
    tasks: Path
    """Folder whose folders are the tasks. A row names one in its field `task`."""
    command: Command | None = None
    """Program and arguments of the agent, as of kind `harness`; `ROLLCAST_CONTAINER` is the command
    by which it runs another one in the task's container. It is trusted. None = the shipped one: a
    loop with one tool, `shell`."""
    container: ContainerSettings = ContainerSettings()
    """The largest container that a task may ask for, and its network. Each task has an image of its
    own."""
    reset_seconds: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """Deadline for an agent's first request, the start of its container included."""
    call_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1_800.0
    """How long an agent may take between an answer and its next request, or the task's tests to
    their end. Harbor allows tests ten minutes; a
    fresh container and copies come before them."""

    @property
    def is_started_here(self) -> bool:
        return True

    @property
    def starts_pods(self) -> bool:
        return self.container.engine == "kubernetes"
