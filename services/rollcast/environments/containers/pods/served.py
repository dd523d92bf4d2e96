"""Commands in a pod for programs of this machine, which need no access to the cluster.

enter_pod.py -- socket --> this process --> pod        request: a line of JSON, the command
             <-- size, output ... 0, exit code --
"""

import asyncio
import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from rollcast.environments.bounded_output import BoundedOutput
from rollcast.environments.containers.errors import ContainerError
from rollcast.environments.containers.pods import enter_pod
from rollcast.environments.containers.pods.command import LostCommandError, RefusedCommandError

Stream = Callable[[Sequence[str]], AsyncGenerator[bytes | int, None]]


class ServedCommands:
    """A socket of this machine's user; each connection is one command."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        self._stream = stream
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.failure = ""
        """Why a command was lost that its pod did not refuse; empty = none was."""

    @classmethod
    async def start(cls, stream: Stream) -> "ServedCommands":
        """Raises ContainerError."""
        served = cls(stream, Path(tempfile.mkdtemp(prefix="rollcast-")))
        try:
            # No command is longer
            served._server = await asyncio.start_unix_server(
                served._serve, served._socket, limit=1 << 22
            )
        except OSError as error:
            await served.close()
            raise ContainerError(f"{served._socket} cannot be opened: {error}") from error
        return served

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", enter_pod.__file__, str(self._socket)]

    async def close(self) -> bool:
        """Serve no further command, and leave those under way; returns whether there were any."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        return bool(tasks)

    @property
    def _socket(self) -> Path:
        return self._folder / "commands"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        closing: asyncio.Task[bytes] | None = None
        try:
            # A program that was killed reads no more.
            with contextlib.suppress(OSError, ValueError):
                command = json.loads(await reader.readline())
                closing = asyncio.create_task(reader.read())
                closing.add_done_callback(lambda _: task.cancel())
                await self._answer(command, writer)
        finally:
            if closing is not None:
                closing.cancel()
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, command: Sequence[str], writer: asyncio.StreamWriter) -> None:
        output = BoundedOutput(1 << 20)
        code = 0
        try:
            async with contextlib.aclosing(self._stream(command)) as stream:
                async for chunk in stream:
                    if isinstance(chunk, int):
                        code = chunk
                        break
                    await _write(writer, output.keep(chunk))
        except (LostCommandError, ContainerError) as error:
            if not isinstance(error, RefusedCommandError):
                self.failure = str(error)
            code = 125
            await _write(writer, b"the command did not run to its end\n")
        if output.num_dropped:
            await _write(writer, f"\n[{output.num_dropped} further bytes were not kept]\n".encode())
        writer.write(bytes(4) + bytes([code]))
        await writer.drain()


async def _write(writer: asyncio.StreamWriter, content: bytes) -> None:
    if content:
        writer.write(len(content).to_bytes(4, "big") + content)
        await writer.drain()
