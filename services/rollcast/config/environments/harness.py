"""Settings of a harness: a program that runs an agent itself and asks for completions."""

from typing import Literal

from rollcast.config.environments.settings import Command, ProgramEnvironment


class HarnessEnvironment(ProgramEnvironment):
    kind: Literal["harness"] = "harness"
    """A program that speaks chat completions with the generator's endpoint. It is trusted: it runs
    with everything that you can do."""
    command: Command | None = None
    """Program and arguments, started for each episode in a folder of its own. Arguments that name a
    file of the folder in which the command was started become absolute paths. None = programs that
    you run yourself ask for the next task."""

    @property
    def is_started_here(self) -> bool:
        return self.command is not None
