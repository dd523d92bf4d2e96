"""Programs that take the turns of sessions: a command for each, or a rollout that another package
plays.
"""

import asyncio
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from rollcast.environments.harness.folder import remove_abandoned
from rollcast.environments.harness.trust import trusting
from rollcast.environments.kinds.kind import ProgramSource, SessionProgram, Surroundings, find_kind
from rollcast.generator.endpoint.session import HarnessSession


class SessionPrograms:
    """The programs of one generator's sessions."""

    def __init__(self, authority: Path | None = None) -> None:
        """`authority`: verifies the certificate of the generator's server.

        None = programs trust it already.
        """
        remove_abandoned()
        self._closing = ExitStack()
        variables: Mapping[str, str] = {}
        if authority is not None:
            folder = self._closing.enter_context(
                tempfile.TemporaryDirectory(prefix="rollcast-trust-")
            )
            variables = trusting(authority, Path(folder))
        self._surroundings = Surroundings(variables=variables)
        self._running: set[SessionProgram] = set()
        self._sources: dict[str, ProgramSource] = {}

    async def start(
        self, session: HarnessSession, session_description: Mapping[str, str]
    ) -> SessionProgram:
        """Start the program of a session. Raises EnvironmentFailedError."""
        settings = session.settings
        source = self._sources.get(settings.name)
        if source is None:
            source = self._sources[settings.name] = find_kind(settings).start(
                settings, self._surroundings
            )
        row = json.dumps(json.loads(session.task.reference))  # on one line
        run = session.task.sampling
        sampling = {"temperature": run.temperature, "top_p": run.top_p, "top_k": run.top_k}
        program = await source.start(row, session_description, sampling)
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
        await asyncio.gather(
            *(self.end(program) for program in list(self._running)), return_exceptions=True
        )
        await asyncio.gather(
            *(source.close() for source in self._sources.values()), return_exceptions=True
        )
        self._closing.close()
