"""Settings of harness sessions of the package `openenv`."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from rollcast.config.base import FUNCTION
from rollcast.config.environments.settings import SessionEnvironment


class OpenEnvSessionEnvironment(SessionEnvironment):
    masks_sampled_tokens: ClassVar[bool] = True

    kind: Literal["openenv-sessions"] = "openenv-sessions"
    """Harness sessions of OpenEnv 0.10.0: an agent that runs its own loop, with its TrainingTrace
    and the reward of `verify`. It is trusted: it runs with everything that you can do."""
    factory: Annotated[str, Field(pattern=FUNCTION)]
    """`./agent.py:make` or `package.module:Factory`. It returns a `ResourceSessionFactory`, and is
    called for each episode, with `arguments` and with those of `base_url`, `llm_url`, `api_key`,
    `model` and `sampling` that it names."""
    interpreter: Path
    """Python of the virtual environment in which `openenv` and the factory's packages are
    installed: sessions run there."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of `factory`."""

    @property
    def is_started_here(self) -> bool:
        return True
