"""Settings of a harness: a program that runs an agent itself and asks for completions."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.environments.settings import SessionEnvironment


class HarnessEnvironment(SessionEnvironment):
    kind: Literal["harness"] = "harness"
    """A program that speaks chat completions with the generator's endpoint. It is trusted: it runs
    with everything that you can do."""
    command: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1, max_length=256)
        ]
        | None
    ) = None
    """Program and arguments, started for each episode in a folder of its own. Arguments that name a
    file of the folder in which the command was started become absolute paths. None = programs that
    you run yourself ask for the next task."""
    model_exit_codes: tuple[Annotated[int, Field(ge=1, le=125)], ...] = ()
    """Exit codes by which the program says that the model's mistake ended it, such as a call of a
    tool that is not there. The episode is then trained: with the reward that was posted before,
    else with 0, or with the verifier's verdict. None by default: an exit code other than 0 is a
    failed program, whose episode is left out."""

    @property
    def is_started_here(self) -> bool:
        return self.command is not None
