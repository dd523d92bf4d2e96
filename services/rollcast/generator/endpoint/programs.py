"""Programs that take the turns of sessions: a command for each, or a rollout that another package plays."""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.harness.folder import remove_abandoned
from rollcast.environments.harness.helper import TracedHelper
from rollcast.environments.harness.program import HarnessProgram
from rollcast.environments.harness.trust import trusting
from rollcast.environments.openenv_sessions.helper import OpenEnvHelper
from rollcast.environments.verifiers.helper import VerifiersHelper
from rollcast.generator.endpoint.session import HarnessSession


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

    def __init__(self, authority: Path | None = None) -> None:
        """`authority`: verifies the certificate of the generator's server. None = programs trust it already."""
        remove_abandoned()
        self._closing = ExitStack()
        self._trust: dict[str, str] = {}
        if authority is not None:
            folder = self._closing.enter_context(tempfile.TemporaryDirectory(prefix="rollcast-trust-"))
            self._trust = trusting(authority, Path(folder))
        self._running: set[SessionProgram] = set()
        self._verifiers: dict[str, VerifiersHelper] = {}
        self._openenv: dict[str, OpenEnvHelper] = {}

    async def start(self, session: HarnessSession, described: Mapping[str, str]) -> SessionProgram:
        """Start the program of a session. Raises EnvironmentFailedError."""
        settings = session.settings
        row = session.task.row
        program: SessionProgram
        if isinstance(settings, VerifiersEnvironment):
            tasksets = self._verifiers.setdefault(settings.name, VerifiersHelper(settings, self._trust))
            program = await tasksets.start(json.loads(row), described)
        elif isinstance(settings, OpenEnvSessionEnvironment):
            sessions = self._openenv.setdefault(settings.name, OpenEnvHelper(settings, self._trust))
            run = session.task.sampling
            sampling = {"temperature": run.temperature, "top_p": run.top_p, "top_k": run.top_k}
            program = await sessions.start(json.loads(row), described, sampling)
        else:
            assert isinstance(settings, HarnessEnvironment)
            assert settings.command is not None
            variables = self._trust | _variables(described, row)
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
        await asyncio.gather(*(self.end(program) for program in list(self._running)), return_exceptions=True)
        helpers: list[TracedHelper[Any]] = [*self._verifiers.values(), *self._openenv.values()]
        await asyncio.gather(*(helper.close() for helper in helpers), return_exceptions=True)
        self._closing.close()


def _variables(described: Mapping[str, str], row: str) -> dict[str, str]:
    """The environment variables of a command. Standard input has every row; a variable holds a short one alone."""
    # Linux starts no program with a variable of over 128 KiB
    row_variables = {"ROLLCAST_ROW": row} if len(row.encode()) <= 100_000 else {}
    return row_variables | {
        "OPENAI_BASE_URL": described["base_url"],
        "OPENAI_API_KEY": described["token"],
        "ROLLCAST_REWARD_URL": described["reward_url"],
        "ROLLCAST_MODEL": described["model"],
    }
