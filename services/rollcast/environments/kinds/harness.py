"""A command that runs an agent itself and asks the generator's endpoint for completions."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.environments.harness.program import HarnessProgram
from rollcast.environments.kinds.kind import Surroundings
from rollcast.environments.kinds.lookup import missing_program


def missing(settings: HarnessEnvironment, field: str) -> Iterator[str]:
    if settings.command is not None:
        yield from missing_program(f"{field}.command.0", settings.command[0])


def start(settings: HarnessEnvironment, surroundings: Surroundings) -> "HarnessPrograms":
    assert settings.command is not None, "else programs elsewhere ask for the tasks"
    return HarnessPrograms(settings.command, surroundings)


class HarnessPrograms:
    """A process for each episode."""

    def __init__(
        self,
        command: Sequence[str],
        surroundings: Surroundings,
        clean_up: Callable[[], object] = lambda: None,
    ) -> None:
        """clean_up: see HarnessProgram.start."""
        self._command = command
        self._clean_up = clean_up
        self._variables = surroundings.variables

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> HarnessProgram:
        """Start the command with the row as its standard input. Raises EnvironmentFailedError."""
        with tempfile.TemporaryFile() as file:
            file.write(row.encode())
            file.seek(0)
            variables = {**self._variables, **_variables(described, row)}
            return await HarnessProgram.start(
                self._command,
                variables,
                stdin=file.fileno(),
                has_own_home=True,
                clean_up=self._clean_up,
            )

    async def close(self) -> None:
        """Programs share nothing."""


def _variables(described: Mapping[str, str], row: str) -> dict[str, str]:
    """The environment variables of a command.

    Standard input has every row; a variable holds a short one alone.
    """
    # Linux starts no program with a variable of over 128 KiB
    row_variables = {"ROLLCAST_ROW": row} if len(row.encode()) <= 100_000 else {}
    return row_variables | {
        "OPENAI_BASE_URL": described["base_url"],
        "OPENAI_API_KEY": described["token"],
        # Anthropic's clients add /v1 themselves.
        "ANTHROPIC_BASE_URL": described["base_url"].removesuffix("/v1"),
        "ANTHROPIC_AUTH_TOKEN": described["token"],
        "ANTHROPIC_MODEL": described["model"],
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": f"{described['model']}-untrained",
        "ROLLCAST_REWARD_URL": described["reward_url"],
        "ROLLCAST_MODEL": described["model"],
    }
