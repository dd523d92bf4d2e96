"""Settings of a harness: a program that runs an agent itself and asks for completions."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.environments.settings import EnvironmentSettings


class HarnessEnvironment(EnvironmentSettings):
    kind: Literal["harness"] = "harness"
    """A program that speaks chat completions with the generator's endpoint. It is trusted: it runs with everything that you
    can do."""
    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=256)] | None = (
        None
    )
    """Program and arguments, started for each episode in a folder of its own. Arguments that name a file of the folder in
    which the command was started become absolute paths. None = programs that you run yourself ask for the next task."""
    sampling: Literal["refuse", "run"] = "refuse"
    """What happens to a request whose temperature, top_p or similar differs from the run's: it is refused in a sentence, or
    `run`: it is answered with the run's settings, and counted."""
    reset_seconds: Annotated[float, Field(gt=0, le=86_400)] = 120.0
    """Deadline for a program's first request. Two minutes: an import may take one on a busy machine."""
    call_seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    """How long a program may take between an answer and its next request or its end, before it counts as failed: the longest
    call of its tools, and more."""
