"""A command of this machine, with a deadline and a bounded output.

start -> read until it ends | deadline: killed -> its output
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import IO

from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.containers.errors import ContainerError
from rollcast.processes.tree import kill_group


async def run_host_command(
    command: Sequence[str],
    seconds: float,
    *,
    stdin: bytes | IO[bytes] = b"",
    output_file: IO[bytes] | None = None,
    max_bytes: int = 1 << 20,
) -> CommandOutput:
    """Run a command to its end, or to its deadline.

    output_file: takes the output in place of memory. max_bytes: largest part of the output that is
    kept; the rest is read and dropped. Raises ContainerError if the program cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE if isinstance(stdin, bytes) else stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # too long for one argument, or a NUL in it
        raise ContainerError(f"{command[0]} cannot be started: {error}") from error
    output = CommandOutput(max_bytes, output_file)
    try:
        async with asyncio.timeout(seconds):
            if isinstance(stdin, bytes):
                await _write(process, stdin)
            assert process.stdout is not None
            # Bytes of one read of a pipe
            while chunk := await process.stdout.read(1 << 16):
                output.add(chunk)
            await process.wait()
    except TimeoutError:
        output.is_overdue = True
    finally:
        if process.returncode is None:
            kill_group(process.pid)
    try:
        # How long the kernel may take to end a killed command
        async with asyncio.timeout(10.0):
            code = await process.wait()
    except TimeoutError:
        raise ContainerError(f"{command[0]} cannot be killed") from None
    # A signal as a shell reports it
    output.code = code if code >= 0 else 128 - code
    return output


async def _write(process: asyncio.subprocess.Process, content: bytes) -> None:
    assert process.stdin is not None
    # A program that has ended says why in its output.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(content)
        await process.stdin.drain()
    process.stdin.close()
