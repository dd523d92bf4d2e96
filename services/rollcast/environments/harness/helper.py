"""The generator's side of a package that plays rollouts in a Python of its own: one process for
each environment.

start -> the process, when it is first needed, and again after it ended -> a rollout in it
    rollout ended | cancelled       one that does not end when it is cancelled holds up the others:
                                    all are killed
"""

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.harness.interpreter import adapter_variables
from rollcast.environments.harness.program import HarnessProgram
from rollcast.processes.frames import MAX_ANSWER_BYTES, FrameError, pack_message, read

CANCEL_SECONDS = 10.0
"""How long a cancelled rollout may take to end, on a busy machine."""


class TracedRollout:
    """A started rollout, of which the package gives a trace at its end.

    It has the methods of a HarnessProgram.
    """

    exit_code = None
    """Rollouts share one process, whose exit code is not theirs."""
    package: ClassVar[str]
    """The package's name in failures."""

    def __init__(self, helper: "TracedHelper[Any]", number: int) -> None:
        self._helper = helper
        self.number = number
        self._end_event = asyncio.Event()
        self._answer: Mapping[str, Any] = {}

    @property
    def has_ended(self) -> bool:
        return self._end_event.is_set()

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""
        return f"failed in {self.package}" if "failed" in self._answer else ""

    @property
    def is_ended_by_another(self) -> bool:
        """Whether it was ended with its process, because another rollout did not end."""
        return bool(self._answer.get("ended_by_another"))

    @property
    def last_lines(self) -> str:
        """Why it failed."""
        return str(self._answer.get("failed", ""))

    @property
    def unusable(self) -> str:
        """Why its trace cannot be trained; empty = it can."""
        return str(self._answer.get("unusable", ""))

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._end_event.wait()
        return self.has_ended

    async def end(self) -> None:
        """Cancel it. May be called again."""
        await self._helper.cancel(self)

    def note(self, answer: Mapping[str, Any]) -> None:
        """Take the answer with which it has ended."""
        self._answer = answer
        self._end_event.set()


Played = TypeVar("Played", bound=TracedRollout)


class TracedHelper(Generic[Played]):
    """The process of one environment of the run file."""

    def __init__(
        self,
        kind: type[Played],
        command: list[str],
        variables: Mapping[str, str],
        loading: Mapping[str, Any],
        loaded: str,
        seconds: float,
    ) -> None:
        """`command`: the adapter. `variables`: added to those of the user.

        `loading`: its first request, answered when what `loaded` names is there.
        """
        self._kind = kind
        self._command = command
        self._variables = variables
        self._loading = loading
        self._loaded = loaded
        self._seconds = seconds
        self._starting: asyncio.Task[None] | None = None
        self._program: HarnessProgram | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._running: dict[int, Played] = {}
        self._num_rollouts = 0

    async def play(self, request: Mapping[str, Any]) -> Played:
        """Begin a rollout. Raises EnvironmentFailedError."""
        is_alive = self._reading is not None and not self._reading.done()
        if self._starting is None or (self._starting.done() and not is_alive):
            self._starting = asyncio.create_task(self._start())
        # Other rollouts wait for the same start, which must not be cancelled with this one.
        await asyncio.shield(self._starting)
        assert self._writer is not None
        self._num_rollouts += 1
        rollout = self._kind(self, self._num_rollouts)
        self._running[rollout.number] = rollout
        self._writer.write(pack_message({"do": "run", "id": rollout.number, **request}))
        return rollout

    async def cancel(self, rollout: TracedRollout) -> None:
        """End a rollout, and the process if the rollout does not end."""
        if not rollout.has_ended and self._writer is not None:
            self._writer.write(pack_message({"do": "cancel", "id": rollout.number}))
            if not await rollout.wait(CANCEL_SECONDS):
                await self._end()

    async def close(self) -> None:
        """End the process and all that it started."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._end()

    async def _start(self) -> None:
        await self._end()
        generator_socket, program_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        interpreter = Path(self._command[0])
        # The process has a copy. With this one open, the end of the process would not be noticed.
        with program_socket:
            try:
                variables = {**adapter_variables(interpreter), **self._variables}
                self._program = await HarnessProgram.start(
                    self._command, variables, stdin=program_socket.fileno()
                )
            except BaseException:
                generator_socket.close()
                raise
        reader, self._writer = await asyncio.open_connection(sock=generator_socket)
        reason: str | None = None
        try:
            async with asyncio.timeout(self._seconds):
                self._writer.write(pack_message(self._loading))
                reason = (await read(reader, MAX_ANSWER_BYTES)).get("failed")
        except TimeoutError:
            reason = f"does not load {self._loaded} within {self._seconds:g} s"
        except (OSError, asyncio.IncompleteReadError):
            await self._program.wait(CANCEL_SECONDS)
            reason = (
                f"ends before {self._loaded} is loaded "
                f"({self._program.last_lines or 'it printed nothing'})"
            )
        except FrameError as error:
            reason = f"sent {error}"
        if reason is not None:
            await self._end()
            raise EnvironmentFailedError(f"interpreter: {interpreter} {reason}")
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass the answers on, until the process ends: then all its rollouts have failed."""
        reason = "its process ended"
        try:
            while True:
                answer = await read(reader, MAX_ANSWER_BYTES)
                rollout = self._running.pop(int(answer.get("id", -1)), None)
                if rollout is not None:
                    rollout.note(answer)
        except (OSError, asyncio.IncompleteReadError):
            # The end of its output is known only when the process has ended.
            if (
                self._program is not None
                and await self._program.wait(CANCEL_SECONDS)
                and self._program.last_lines
            ):
                reason = f"its process ended: {self._program.last_lines}"
        except (FrameError, TypeError, ValueError) as error:
            reason = f"its process sent {error}"
        finally:
            self._fail_all(reason)

    def _fail_all(self, reason: str, *, ended_by_another: bool = False) -> None:
        for rollout in self._running.values():
            rollout.note({"failed": reason, "ended_by_another": ended_by_another})
        self._running.clear()

    async def _end(self) -> None:
        program = self._program
        writer = self._writer
        reading = self._reading
        self._program = None
        self._writer = None
        self._reading = None
        if reading is not None:
            reading.cancel()
        self._fail_all(
            "its process was ended, because another rollout did not end", ended_by_another=True
        )
        if writer is not None:
            writer.close()
        if program is not None:
            await program.end()
