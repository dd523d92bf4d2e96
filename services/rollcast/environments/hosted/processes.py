"""The generator's side: one nursery for each environment, and a pool of environments that are ready.

acquire -> an idle one, or a new one of its nursery (started when first needed)
release -> idle, for the next episode      the profile folder, an overdue call, a failure: ended
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment, Opening, ToolResult
from rollcast.environments.hosted.frames import FrameError, packed, read
from rollcast.environments.hosted.nursery import FORK

START_SECONDS = 120.0
"""Deadline for a module's import, on a busy machine."""
SEND_SECONDS = 30.0
"""Deadline for a busy nursery to take a connection."""
GRACE_SECONDS = 1.0
"""After a deadline, the environment's process has this long to interrupt the call itself."""
END_SECONDS = 5.0
"""How long a nursery may take to end all of its environments."""
MAX_AT_WORK = 512
"""Environments of one kind that serve episodes at the same time; another episode waits. Some gigabytes at most."""
_INHERITED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LANG", "LD_LIBRARY_PATH")
"""All that a contained environment sees of the surroundings: no address, password or token is among them. A trusted one
sees the user's variables without ours."""


class HostedEnvironment:
    """A LiveEnvironment in a process of its own."""

    def __init__(
        self, settings: ClassEnvironment | ToolSet, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._writer = writer
        self._num_requests = 0
        self.has_failed = False
        """It cannot serve another episode."""

    @property
    def is_gone(self) -> bool:
        """It cannot serve another episode."""
        return self.has_failed or self._reader.at_eof()

    async def reset(self, row: Mapping[str, Any]) -> Opening:
        """Begin an episode. Raises EnvironmentFailedError."""
        seconds = self._settings.reset_seconds
        answer = await self._ask({"do": "reset", "row": dict(row)}, seconds)
        if "overdue" in answer:
            raise self._failed(f"reset took longer than {seconds:g} s")
        opening = answer["opening"]
        messages = opening if isinstance(opening, list) else None
        if messages is not None and not all(map(_is_message, messages)):
            raise self._failed("reset returned a list that is not one of messages with role and content")
        if messages is not None:
            messages = [{name: _writable(message[name]) for name in ("role", "content")} for message in messages]
        return Opening(
            answer["tools"], text=_writable(opening) if isinstance(opening, str) else None, messages=messages
        )

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. Raises EnvironmentFailedError if the process died, or cannot be interrupted at the deadline."""
        seconds = self._settings.call_seconds
        answer = await self._ask({"do": "call", "tool": tool, "arguments": dict(arguments)}, seconds)
        if "overdue" in answer:
            return ToolResult(f"Error: {tool} took longer than {seconds:g} s and was interrupted", is_overdue=True)
        return ToolResult(
            _writable(answer["text"]),
            is_malformed=bool(answer.get("malformed")),
            reward=answer.get("reward"),
            is_overdue=bool(answer.get("late")),
            is_cut=bool(answer.get("cut")),
        )

    async def reward(self) -> float | None:
        """The result of `get_reward`; None = the class has no such method. Raises EnvironmentFailedError."""
        seconds = self._settings.call_seconds
        answer = await self._ask({"do": "reward"}, seconds)
        if "overdue" in answer:
            raise self._failed(f"get_reward took longer than {seconds:g} s")
        reward = answer["reward"]
        return None if reward is None else float(reward)

    async def close(self) -> None:
        """The nursery ends the process when the connection closes."""
        self.has_failed = True
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        is_answered = False
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                self._num_requests += 1
                self._writer.write(packed({**request, "seconds": seconds, "number": self._num_requests}))
                await self._writer.drain()
                answer = await read(self._reader)
            if "ended" not in answer and answer.get("number") != self._num_requests:
                # Code of the model may write on the connection too.
                raise FrameError("an answer to another request")
            is_answered = "ended" not in answer
        except TimeoutError:
            raise self._failed(
                f"{request['do']} could not be interrupted after {seconds:g} s", is_overdue=True
            ) from None
        except (OSError, asyncio.IncompleteReadError):
            raise self._failed(f"its process ended during {request['do']}") from None
        except FrameError as error:
            raise self._failed(f"its process sent {error}") from error
        finally:
            self.has_failed |= not is_answered
        if "ended" in answer:
            raise self._failed(f"its processes were ended: {answer['ended']}")
        if "failed" in answer:
            raise self._failed(str(answer["failed"]))
        return answer

    def _failed(self, why: str, *, is_overdue: bool = False) -> EnvironmentFailedError:
        self.has_failed = True
        return EnvironmentFailedError(why, is_overdue=is_overdue)


def _is_message(message: Any) -> bool:
    return isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("role", "content"))


def _writable(text: Any) -> str:
    """A text that every tokenizer takes: without halves of characters."""
    return str(text).encode("utf-8", "replace").decode()


class EnvironmentProcesses:
    """Processes of one environment of the run file."""

    def __init__(self, settings: ClassEnvironment | ToolSet) -> None:
        self._settings = settings
        self._starting = asyncio.Lock()
        self._room = asyncio.Semaphore(MAX_AT_WORK)
        self._nursery: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._sends: set[asyncio.Task[None]] = set()
        """Connections that are on their way to the nursery."""
        self._is_closing = False
        self._live: set[HostedEnvironment] = set()
        self._idle: list[HostedEnvironment] = []
        """The last one that was given back is the first to go: its memory is warm."""

    async def acquire(self) -> HostedEnvironment:
        """An idle environment, or a new one. Waits for room until it is cancelled: an episode's own deadline does that.

        Raises EnvironmentFailedError.
        """
        await self._room.acquire()
        try:
            return await self._idle_one() or await self._new_one()
        except BaseException:
            self._room.release()
            raise

    async def _idle_one(self) -> HostedEnvironment | None:
        """None = all are at work, or have died meanwhile."""
        while self._idle:
            environment = self._idle.pop()
            if not environment.is_gone:
                return environment
            self._live.discard(environment)
            await environment.close()
        return None

    async def _new_one(self) -> HostedEnvironment:
        own, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        send = asyncio.create_task(self._send(its_end))
        self._sends.add(send)
        send.add_done_callback(self._sent)
        try:
            # Goes on if this is cancelled: until the thread is done, no other file may get the descriptor's number.
            await asyncio.shield(send)
        except BaseException:
            own.close()
            raise
        reader, writer = await asyncio.open_connection(sock=own)
        environment = HostedEnvironment(self._settings, reader, writer)
        self._live.add(environment)
        return environment

    async def _send(self, its_end: socket.socket) -> None:
        """Send the environment's end of a connection to the nursery. Raises EnvironmentFailedError."""
        with its_end:
            async with self._starting:
                # In a thread: a nursery that is busy would hold up everything else of the generator.
                await asyncio.to_thread(self._ask_for, its_end.fileno())

    def _sent(self, send: asyncio.Task[None]) -> None:
        self._sends.discard(send)
        if not send.cancelled():
            send.exception()  # a caller that was cancelled does not look at it

    def _ask_for(self, connection: int) -> None:
        """Send a connection to the nursery, which is started if there is none. Raises EnvironmentFailedError."""
        if self._is_closing:
            raise EnvironmentFailedError("the generator ends")
        if self._nursery is None or self._nursery.poll() is not None:
            self._start()
        assert self._control is not None
        try:
            socket.send_fds(self._control, [FORK], [connection])
        except OSError as error:
            raise EnvironmentFailedError(f"its nursery does not take a connection ({error})") from error

    async def release(self, environment: HostedEnvironment, *, is_reusable: bool) -> None:
        """Keep it for another episode, or end it."""
        self._room.release()
        if is_reusable and self._may_be_reused and not environment.is_gone:
            self._idle.append(environment)
        else:
            self._live.discard(environment)
            await environment.close()

    async def replace(self, environment: LiveEnvironment) -> HostedEnvironment:
        """End an environment that serves an episode; a new one takes its place. Raises EnvironmentFailedError."""
        assert isinstance(environment, HostedEnvironment)
        self._live.discard(environment)
        await environment.close()
        return await self._new_one()

    @property
    def _may_be_reused(self) -> bool:
        """A private folder lives as long as its episode, and code of the model may change a process."""
        runs_code = isinstance(self._settings, ToolSet) and "python" in self._settings.tools
        return self._settings.profile != "folder" and not runs_code

    async def close(self) -> None:
        """End every process."""
        self._is_closing = True
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for the nursery
        await asyncio.gather(*self._sends, return_exceptions=True)
        for environment in self._live:
            await environment.close()
        self._live.clear()
        self._idle.clear()
        if self._control is not None:
            self._control.close()
        if self._nursery is not None:
            await asyncio.to_thread(_ended, self._nursery)

    def _start(self) -> None:
        """Raises EnvironmentFailedError: the module cannot be imported, or the machine cannot contain it."""
        if self._control is not None:
            self._control.close()
        self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        trusted = self._settings.profile == "trusted"
        variables = {key: value for key, value in os.environ.items() if trusted or key in _INHERITED}
        variables = {key: value for key, value in variables.items() if not key.startswith("ROLLCAST_")}
        with its_end:
            self._nursery = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-P", "-m", "rollcast.environments.hosted.nursery", str(its_end.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if trusted else subprocess.DEVNULL,
                pass_fds=(its_end.fileno(),),
                start_new_session=True,
                env=variables,
            )
        assert self._nursery.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._nursery.stdin as stdin:
            stdin.write(self._settings.model_dump_json().encode())
        why = _why_not_ready(self._control)
        if why is not None:
            _ended(self._nursery)
            raise EnvironmentFailedError(why)


def _why_not_ready(control: socket.socket) -> str | None:
    """None when the nursery is ready."""
    control.settimeout(START_SECONDS)
    try:
        content = control.recv(1 << 16)
        if not content:
            return "its module ends the process when it is imported"
        answer = json.loads(content)
    except TimeoutError:
        return f"its module takes more than {START_SECONDS:g} s to import"
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        control.settimeout(SEND_SECONDS)
    failed = answer.get("failed")
    return None if failed is None else str(failed)


def _ended(nursery: subprocess.Popen[bytes]) -> None:
    try:
        nursery.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        nursery.kill()  # each guard gets a signal then, and ends its processes
        nursery.wait(timeout=END_SECONDS)
