"""The sessions of one generator: found by their names in a URL, opened and closed by attempts.

    http://HOST:PORT/rollcast/SESSION/v1        its base URL, for any client of the OpenAI API
    http://HOST:PORT/rollcast/SESSION/reward    a program reports its reward here

Lives on the engine's loop; `loop` is how the server's thread reaches it.
"""

import asyncio
import hmac
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from rollcast.config.connections import Http
from rollcast.environments.kinds.kind import SessionProgram
from rollcast.generator.endpoint.programs import SessionPrograms
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.logging import get_logger

T = TypeVar("T")
log = get_logger()

PREFIX = "/rollcast/"
"""Begins the paths that the endpoint guards itself, by the tokens of its sessions."""


class Sessions:
    """All sessions of one generator."""

    def __init__(self, model: str, http: Http) -> None:
        """`model`: the name under which it is served. `http`: its token lets outside programs ask
        for tasks, its authority verifies the certificate of the generator's server.

        Call it on the engine's loop.
        """
        self.model = model
        self.run_token = None if http.token is None else http.token.get_secret_value().encode()
        self.loop = asyncio.get_running_loop()
        self.url = ""
        """Address of the generator's server, for programs on this machine; known once it
        listens."""
        self.make_single: Callable[[HarnessSession | None], HarnessSession] | None = None
        """Makes the session of a call without one, or of an untrained request of a given one.
        None = the engine has not started."""
        self._sessions: dict[str, HarnessSession] = {}
        self._waiting: deque[HarnessSession] = deque()
        """Sessions that an outside program may take, the oldest first."""
        self._arrival = asyncio.Condition()
        self.programs = SessionPrograms(http.tls.certificate_authority if http.tls else None)
        self._reported: set[tuple[str, str]] = set()

    def find(self, name: str, token: bytes) -> HarnessSession:
        """The session of this name, if the token is its own.

        Raises RefusedRequestError. Thread-safe.
        """
        session = self._sessions.get(name)
        if session is None:
            raise RefusedRequestError(
                "there is no such session: it has ended, or it is another generator's; each task "
                "has its own base URL",
                404,
                "no_session",
            )
        if not hmac.compare_digest(token, session.token.encode()):
            raise RefusedRequestError(
                "wrong or missing token: send the session's as the API key", 401, "wrong_token"
            )
        return session

    def add(self, session: HarnessSession) -> None:
        """Open a session."""
        self._sessions[session.id] = session

    def remove(self, session: HarnessSession) -> None:
        """Close it: what runs in it ends, and later calls find no session."""
        session.close()
        self._sessions.pop(session.id, None)
        with suppress(ValueError):
            self._waiting.remove(session)

    def on_engine(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Begin work on the engine's loop. Call it on the server's."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def offer(self, session: HarnessSession) -> None:
        """Let an outside program take a session."""
        async with self._arrival:
            self._waiting.append(session)
            self._arrival.notify()

    async def next_task(self, seconds: float) -> HarnessSession | None:
        """A session that no program has taken, waited for this long; None = none came."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._arrival:
                try:
                    await self._arrival.wait_for(lambda: bool(self._waiting))
                except asyncio.CancelledError:
                    self._arrival.notify()  # its task, if it got one, is for the next
                    raise
                session = self._waiting.popleft()
                session.claimed.set()
                return session
        return None

    async def start(self, session: HarnessSession) -> SessionProgram:
        """Start a session's program. Raises EnvironmentFailedError."""
        return await self.programs.start(session, self.describe_session(session, self.url))

    def describe_session(self, session: HarnessSession, url: str) -> dict[str, str]:
        """A session for the program that takes its turns. `url`: of this generator's server."""
        session_url = f"{url}{PREFIX}{session.id}"
        return {
            "session": session.id,
            "base_url": f"{session_url}/v1",
            "reward_url": f"{session_url}/reward",
            "end_url": f"{session_url}/end",
            "token": session.token,
            "model": self.model,
        }

    def note_replaced(self, session: HarnessSession, settings: tuple[str, ...]) -> None:
        """Count settings in place of which the run's are used, and report each once.

        Thread-safe.
        """
        environment = session.environment
        for setting in settings:
            session.parts.exporter.add(episode_metrics.ENDPOINT_REPLACED, environment=environment)
            # At most 100 are reported: a program may send any name.
            if (environment, setting[:100]) not in self._reported and len(self._reported) < 100:
                self._reported.add((environment, setting[:100]))
                log.warning(
                    "a harness sets its own sampling; the run's is used",
                    environment=environment,
                    setting=setting[:100],
                )

    async def close(self) -> None:
        """Close all sessions, and end all programs."""
        for session in list(self._sessions.values()):
            self.remove(session)
        await self.programs.close()
