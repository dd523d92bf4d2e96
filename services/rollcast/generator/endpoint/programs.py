"""What takes the turns of sessions: a command of its own for each, or rollouts of verifiers in one process."""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from typing import Protocol

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.harness.program import HarnessProgram
from rollcast.environments.verifiers.helper import VerifiersHelper

MAX_VARIABLE_BYTES = 100_000
"""Linux starts no program with a variable of over 128 KiB."""


class SessionProgram(Protocol):
    """A started program of one session."""

    @property
    def has_ended(self) -> bool: ...

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""
        ...

    @property
    def last_lines(self) -> str:
        """The end of its output, in one line."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        ...

    async def end(self) -> None:
        """End it and everything that it started."""
        ...


class SessionPrograms:
    """The programs of one generator's sessions."""

    def __init__(self) -> None:
        self._running: set[SessionProgram] = set()
        self._helpers: dict[str, VerifiersHelper] = {}

    async def start(self, settings: SessionEnvironment, described: Mapping[str, str], row: str) -> SessionProgram:
        """Start the program of a session. Raises EnvironmentFailedError."""
        program: SessionProgram
        if isinstance(settings, VerifiersEnvironment):
            helper = self._helpers.setdefault(settings.name, VerifiersHelper(settings))
            program = await helper.start(json.loads(row), described)
        else:
            assert isinstance(settings, HarnessEnvironment)
            assert settings.command is not None
            variables = _variables(described, row)
            with tempfile.TemporaryFile() as file:
                file.write(row.encode())
                file.seek(0)
                program = await HarnessProgram.start(settings.command, variables, stdin=file.fileno())
        self._running.add(program)
        return program

    async def end(self, program: SessionProgram) -> None:
        """End a program and everything that it started."""
        try:
            await program.end()
        finally:
            self._running.discard(program)

    async def close(self) -> None:
        """End all."""
        helpers = [helper.close() for helper in self._helpers.values()]
        await asyncio.gather(*helpers, *(self.end(one) for one in list(self._running)), return_exceptions=True)


def _variables(described: Mapping[str, str], row: str) -> dict[str, str]:
    """What a command finds in its environment. Its standard input has every row; a variable holds a short one alone."""
    found = {"ROLLCAST_ROW": row} if len(row.encode()) <= MAX_VARIABLE_BYTES else {}
    return found | {
        "OPENAI_BASE_URL": described["base_url"],
        "OPENAI_API_KEY": described["token"],
        "ROLLCAST_REWARD_URL": described["reward_url"],
        "ROLLCAST_MODEL": described["model"],
    }
