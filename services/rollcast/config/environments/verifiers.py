"""Settings of a taskset of the package `verifiers`."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rollcast.config.base import TASKSET
from rollcast.config.environments.settings import SessionEnvironment


class VerifiersEnvironment(SessionEnvironment):
    masks_sampled_tokens: ClassVar[bool] = True

    kind: Literal["verifiers"] = "verifiers"
    """A taskset of verifiers 0.4.0: its harness takes the turns, its rewards are the reward. It is
    trusted: it runs with everything that you can do."""
    taskset: Annotated[str, Field(pattern=TASKSET)]
    """Id of the taskset, as `vf-eval` takes it."""
    interpreter: Path
    """Python of the virtual environment in which `verifiers` and the taskset are installed: both
    run there."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """verifiers' own `[env]` block, without the taskset's id. A seat without `harness` has the
    taskset's own, else `null` (chat and the taskset's tools), in a process on the generator's
    machine."""

    @property
    def is_started_here(self) -> bool:
        return True
