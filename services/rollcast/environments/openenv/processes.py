"""The generator's side: one adapter process for each environment of the run file, and a connection
for each episode.

acquire -> an idle connection, or a new one (the adapter is started when first needed, and again if
           it ended, or hung and was ended)
release -> its session of the server ends; idle, for the next episode      a failure: closed
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.config.environments.openenv import OpenEnvEnvironment
from rollcast.environments.base import EnvironmentFailedError, Opening, ToolResult
from rollcast.environments.openenv import adapter
from rollcast.environments.process_connection import ProcessConnection
from rollcast.processes.server_process import ServerProcess
from rollcast.processes.tree import end_group
from rollcast.processes.variables import users_variables

START_SECONDS = 120.0
"""Deadline for the import of `openenv`, on a busy machine."""
END_SECONDS = 5.0
"""How long a session may take to end."""
CONNECT = b"connect"


class OpenEnvSession(ProcessConnection):
    """A LiveEnvironment behind an OpenEnv server. The adapter ends its session when the connection
    closes.
    """

    process = "its adapter"
    after_deadline = "took longer than"

    def __init__(
        self,
        settings: OpenEnvEnvironment,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        adapter_process: ServerProcess,
    ) -> None:
        super().__init__(reader, writer)
        self.adapter = adapter_process
        self._settings = settings
        self._reward: float | None = None
        self._metrics: Mapping[Any, Any] = {}

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Begin an episode: the row's fields are the arguments of the environment's reset, as far
        as it takes them.

        A server whose sessions are all in use is waited for until the deadline. Raises
        EnvironmentFailedError.
        """
        self._reward = None
        self._metrics = {}
        answer = await self._ask({"do": "reset", "row": dict(row)}, self._settings.reset_seconds)
        self._note(answer)
        return Opening(answer["tools"], text=answer["text"] or None)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Make a step.

        Raises EnvironmentFailedError, also at the deadline: OpenEnv's client ends the session then.
        """
        request = {"do": "call", "tool": tool, "arguments": dict(arguments)}
        answer = await self._ask(request, self._settings.call_seconds)
        reward = self._note(answer)
        is_malformed = bool(answer.get("malformed"))
        return ToolResult(answer["text"], is_malformed, reward, is_done=bool(answer.get("done")))

    async def reward(self) -> float | None:
        """The last reward that the environment gave, as OpenEnv's own rollouts take it; reset's if
        none was made after.

        It is not clipped: one outside [0, 1] is no verdict. None = none was given.
        """
        return self._reward

    async def metrics(self) -> Mapping[Any, Any]:
        """The numbers in the metadata of the last observation, which may hold anything else
        besides.
        """
        return self._metrics

    async def end_episode(self) -> None:
        """End the session of the server. Raises EnvironmentFailedError."""
        await self._ask({"do": "end"}, END_SECONDS)

    def _note(self, answer: Mapping[str, Any]) -> float | None:
        # A refused call has no observation: the numbers of the last one stay.
        if "metrics" in answer:
            if not isinstance(answer["metrics"], dict):
                raise self._mark_failed("its adapter sent metrics that are no numbers by name")
            self._metrics = answer["metrics"]
        reward = answer.get("reward")
        if reward is None:
            return None
        if not isinstance(reward, int | float):
            raise self._mark_failed(
                f"its server gave a reward that is not a number but {type(reward).__name__}"
            )
        self._reward = float(reward)
        return self._reward

    async def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        message = {**request, "seconds": seconds}
        return await self._exchange(request["do"], seconds, self._raise_if_failed, message)

    def _raise_if_failed(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "failed" in answer:
            raise self._mark_failed(str(answer["failed"]), is_overdue=bool(answer.get("late")))
        return answer


class OpenEnvSessions:
    """Sessions of one environment of the run file."""

    def __init__(self, settings: OpenEnvEnvironment) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._adapter: ServerProcess | None = None
        self._live: set[OpenEnvSession] = set()
        self._idle: list[OpenEnvSession] = []

    async def acquire(self) -> OpenEnvSession:
        """An idle connection, or a new one. Raises EnvironmentFailedError."""
        async with self._starting:
            if self._adapter is None or self._adapter.process.poll() is not None:
                # Their adapter has ended, and they with it.
                await self._close_sessions()
                await asyncio.to_thread(self._start)
        if self._idle:
            return self._idle.pop()
        assert self._adapter is not None
        adapter_process = self._adapter
        generator_socket, adapter_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with adapter_socket:
                await self._pass_connection(adapter_socket, adapter_process)
        except OSError as error:
            generator_socket.close()
            reason = str(error) or f"for {self._settings.reset_seconds:g} s"
            raise EnvironmentFailedError(f"its adapter takes no connection ({reason})") from error
        reader, writer = await asyncio.open_connection(sock=generator_socket)
        session = OpenEnvSession(self._settings, reader, writer, adapter_process)
        self._live.add(session)
        return session

    async def _pass_connection(
        self, adapter_socket: socket.socket, adapter_process: ServerProcess
    ) -> None:
        """Raises OSError, TimeoutError included."""
        async with asyncio.timeout(self._settings.reset_seconds):
            while True:
                # The socket holds 278 connections, and more episodes may begin together.
                with contextlib.suppress(BlockingIOError):
                    socket.send_fds(adapter_process.control, [CONNECT], [adapter_socket.fileno()])
                    return
                await asyncio.sleep(0.05)

    async def release(self, session: OpenEnvSession, *, is_reusable: bool) -> None:
        """End its episode, and keep the connection for another if it works."""
        if is_reusable and not session.has_failed:
            with contextlib.suppress(EnvironmentFailedError):
                await session.end_episode()
        # The end of the episode may have failed.
        if is_reusable and not session.has_failed:
            self._idle.append(session)
        else:
            self._live.discard(session)
            await session.close()
        # Its adapter has a deadline of its own for each request, so it hangs. Another is started.
        if session.is_silent:
            await asyncio.to_thread(end_group, session.adapter.process, 0.0)

    async def close(self) -> None:
        """End every session and the adapter."""
        await self._close_sessions()
        if self._adapter is not None:
            await asyncio.to_thread(self._adapter.close)

    async def _close_sessions(self) -> None:
        for session in self._live:
            await session.close()
        self._live.clear()
        self._idle.clear()

    def _start(self) -> None:
        """Raises EnvironmentFailedError: the interpreter cannot be started, or has no openenv."""
        if self._adapter is not None:
            self._adapter.close()
        interpreter = self._settings.interpreter
        program = [str(interpreter), "-I", str(Path(adapter.__file__).resolve())]
        try:
            self._adapter = ServerProcess(
                program, [self._settings.url], users_variables(), stdin=subprocess.DEVNULL
            )
        except OSError as error:
            raise EnvironmentFailedError(
                f"interpreter: {interpreter} cannot be started ({error.strerror}); name the "
                "Python of a virtual environment in which openenv is installed"
            ) from error
        failure_reason = _why_not_ready(self._adapter.control)
        if failure_reason is not None:
            self._adapter.close()
            raise EnvironmentFailedError(f"interpreter: {interpreter} {failure_reason}")


def _why_not_ready(control: socket.socket) -> str | None:
    """None when the adapter is ready."""
    control.settimeout(START_SECONDS)
    try:
        content = control.recv(1 << 16)
    except TimeoutError:
        return f"does not start OpenEnv's client within {START_SECONDS:g} s"
    except OSError as error:
        return f"does not start OpenEnv's client ({error})"
    finally:
        # An adapter that hangs reads no connection, and the generator's event loop must not wait.
        control.setblocking(False)
    if not content:
        return "ends before OpenEnv's client is ready"
    import_error = json.loads(content).get("failed")
    return (
        None
        if import_error is None
        else f"cannot import openenv ({import_error}); install openenv==0.10.0 there"
    )
