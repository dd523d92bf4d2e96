"""The generator's side: one process of the taskset's virtual environment, in which verifiers plays many rollouts.

start -> the process, when it is first needed, and again after it ended -> a rollout in it
    rollout ended | cancelled       one that does not end when it is cancelled holds up the others: all are killed
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.harness.program import SECRET_PREFIXES, HarnessProgram
from rollcast.environments.hosted.frames import FrameError, packed, read
from rollcast.environments.verifiers.looking import command

CANCEL_SECONDS = 10.0
"""How long a cancelled rollout may take to end, on a busy machine."""
OWN_PREFIXES = ("ROLLCAST_", "REDIS")
"""Variables of the generator that verifiers does not see. It sees others' keys: its judges need them."""


@dataclass(frozen=True, slots=True)
class TracedAnswer:
    """An answer of the model, as verifiers recorded it."""

    digest: str
    follows: int | None
    """Index of the answer before it in its conversation. None = it is the first."""
    is_trained: bool
    """A branch of the trace that verifiers trains has it."""


@dataclass(frozen=True, slots=True)
class VerifiersTrace:
    """What verifiers recorded of a rollout."""

    reward: float | None
    """The taskset's own value, not checked."""
    stop: str
    """Its stop condition; empty = none."""
    answers: tuple[TracedAnswer, ...]


class VerifiersRollout:
    """A started rollout. It has the methods of a HarnessProgram."""

    def __init__(self, helper: "VerifiersHelper", number: int) -> None:
        self._helper = helper
        self.number = number
        self._ended = asyncio.Event()
        self._answer: Mapping[str, Any] = {}

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""
        return "failed in verifiers" if "failed" in self._answer else ""

    @property
    def last_lines(self) -> str:
        """Why it failed."""
        return str(self._answer.get("failed", ""))

    @property
    def unusable(self) -> str:
        """Why its trace cannot be trained; empty = it can."""
        return str(self._answer.get("unusable", ""))

    def trace(self) -> VerifiersTrace | None:
        """None = it has not ended, or has failed. Raises EnvironmentFailedError if the process sent something else."""
        if "answers" not in self._answer:
            return None
        try:
            answers = tuple(TracedAnswer(str(one[0]), one[1], bool(one[2])) for one in self._answer["answers"])
            return VerifiersTrace(self._answer["reward"], str(self._answer["stop"] or ""), answers)
        except (LookupError, TypeError) as error:
            raise EnvironmentFailedError("its process sent a trace that is none") from error

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._ended.wait()
        return self.has_ended

    async def end(self) -> None:
        """Cancel it. May be called again."""
        await self._helper.cancel(self)

    def note(self, answer: Mapping[str, Any]) -> None:
        """It has ended with this answer."""
        self._answer = answer
        self._ended.set()


class VerifiersHelper:
    """The process of one environment of the run file."""

    def __init__(self, settings: VerifiersEnvironment) -> None:
        self._settings = settings
        self._starting: asyncio.Task[None] | None = None
        self._program: HarnessProgram | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._running: dict[int, VerifiersRollout] = {}
        self._num_rollouts = 0

    async def start(self, row: Mapping[str, Any], described: Mapping[str, str]) -> VerifiersRollout:
        """Begin a rollout of a row in a session. Raises EnvironmentFailedError."""
        if "task" not in row:
            raise EnvironmentFailedError(
                "its row has no field `task`; write the data set by python -m rollcast.environments.verifiers"
            )
        if self._starting is None or (self._starting.done() and not self._is_alive()):
            self._starting = asyncio.create_task(self._start())
        await asyncio.shield(self._starting)
        assert self._writer is not None
        self._num_rollouts += 1
        rollout = VerifiersRollout(self, self._num_rollouts)
        self._running[rollout.number] = rollout
        asked = {name: described[name] for name in ("model", "base_url", "token")}
        self._writer.write(packed({"do": "run", "id": rollout.number, "task": row["task"], **asked}))
        return rollout

    async def cancel(self, rollout: VerifiersRollout) -> None:
        """End a rollout, and the process if the rollout does not end."""
        if not rollout.has_ended and self._writer is not None:
            self._writer.write(packed({"do": "cancel", "id": rollout.number}))
            if not await rollout.wait(CANCEL_SECONDS):
                await self._end()

    async def close(self) -> None:
        """End the process and all that it started."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await self._end()

    def _is_alive(self) -> bool:
        return self._reading is not None and not self._reading.done()

    async def _start(self) -> None:
        await self._end()
        own, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        interpreter = self._settings.interpreter
        seconds = self._settings.reset_seconds
        with its_end:
            try:
                self._program = await HarnessProgram.start(
                    command(self._settings, "serve"), _variables(interpreter), stdin=its_end.fileno()
                )
            except BaseException:
                own.close()
                raise
        reader, self._writer = await asyncio.open_connection(sock=own)
        asked = {"taskset": self._settings.taskset, "arguments": self._settings.arguments}
        why: str | None = None
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(packed(asked))
                why = (await read(reader)).get("failed")
        except TimeoutError:
            why = f"does not load the taskset within {seconds:g} s"
        except (OSError, asyncio.IncompleteReadError):
            await self._program.wait(CANCEL_SECONDS)
            why = f"ends before the taskset is loaded ({self._program.last_lines or 'it printed nothing'})"
        except FrameError as error:
            why = f"sent {error}"
        if why is not None:
            await self._end()
            raise EnvironmentFailedError(f"interpreter: {interpreter} {why}")
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass the answers on, until the process ends: then all its rollouts have failed."""
        why = "its process ended"
        try:
            while True:
                answer = await read(reader)
                rollout = self._running.pop(int(answer.get("id", -1)), None)
                if rollout is not None:
                    rollout.note(answer)
        except (OSError, asyncio.IncompleteReadError):
            if self._program is not None and await self._program.wait(CANCEL_SECONDS) and self._program.last_lines:
                why = f"its process ended: {self._program.last_lines}"
        except (FrameError, TypeError, ValueError) as error:
            why = f"its process sent {error}"
        finally:
            self._fail_all(why)

    def _fail_all(self, why: str) -> None:
        for rollout in self._running.values():
            rollout.note({"failed": why})
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
        self._fail_all("its process was ended, because another rollout did not end")
        if writer is not None:
            writer.close()
        if program is not None:
            await program.end()


def _variables(interpreter: Path) -> dict[str, str]:
    """What verifiers has besides what a harness has: keys, and the programs of its virtual environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper().startswith(SECRET_PREFIXES) and not name.upper().startswith(OWN_PREFIXES)
    }
    return {**kept, "PATH": f"{os.path.abspath(interpreter.parent)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
