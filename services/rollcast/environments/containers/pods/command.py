"""A command in a pod: channels of a websocket.

0  standard input, whose end the command knows: no message ends it
1  output        3  at the end: how the command ended
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import IO, Any

import aiohttp

from rollcast.environments.bounded_output import CommandOutput
from rollcast.environments.containers.pods.api import ClusterError, PodApi


class LostCommandError(Exception):
    """A command did not begin, or its end is not known. The message is one sentence."""


class RefusedCommandError(LostCommandError):
    """The node's runtime could not start a program in the pod."""


async def stream_command(
    api: PodApi,
    pod: str,
    command: Sequence[str],
    stdin: IO[bytes] | None = None,
    max_bytes: int = 1 << 20,
) -> AsyncGenerator[bytes | int, None]:
    """The output as it comes, and then the exit code. Raises LostCommandError.

    max_bytes: largest part of the output that is of use. 137, the code of a killed command, follows
    when far more came: it would pass through the API server until the command's deadline.
    """
    try:
        channels = await api.open_command(pod, command, has_input=stdin is not None)
    except ClusterError as error:
        raise LostCommandError(str(error)) from error
    sending = None if stdin is None else asyncio.create_task(_send(channels, stdin))
    end = b""
    try:
        async for message in channels:
            content = message.data.encode() if isinstance(message.data, str) else message.data
            if message.type not in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
                break
            if content[:1] == b"\x01":
                yield content[1:]
                max_bytes -= len(content)
                if max_bytes < -(64 << 20):
                    yield 137
                    return
            elif content[:1] == b"\x03":
                end += content[1:]
    finally:
        if sending is not None:
            sending.cancel()
        # The other end may be gone, and then answers no goodbye.
        with contextlib.suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(1.0):
                await channels.close()
    yield exit_code(end)


async def run_in_pod(
    api: PodApi,
    pod: str,
    command: Sequence[str],
    seconds: float,
    *,
    stdin: IO[bytes] | None = None,
    output_file: IO[bytes] | None = None,
    max_bytes: int = 1 << 20,
) -> CommandOutput:
    """Run a command to its end, or to its deadline: it is then left. Raises LostCommandError.

    output_file, max_bytes: see run_host_command.
    """
    output = CommandOutput(max_bytes, output_file)
    try:
        async with (
            asyncio.timeout(seconds),
            contextlib.aclosing(stream_command(api, pod, command, stdin, max_bytes)) as stream,
        ):
            async for chunk in stream:
                if isinstance(chunk, int):
                    output.code = chunk
                    break
                output.add(chunk)
    except TimeoutError:
        output.is_overdue = True
        # The code of a killed command, as a shell reports it
        output.code = 137
    return output


async def _send(channels: Any, stdin: IO[bytes]) -> None:
    # A command that has ended says why in its output.
    with contextlib.suppress(OSError, aiohttp.ClientError, RuntimeError):
        # Frames of the size that the cluster itself sends
        while chunk := stdin.read(1 << 15):
            await channels.send_bytes(b"\x00" + chunk)


def exit_code(end: bytes) -> int:
    """The exit code in the content of the last channel. Raises LostCommandError without one."""
    try:
        status = json.loads(end)
        if status["status"] == "Success":
            return 0
        causes = status.get("details", {}).get("causes") or []
        for cause in causes:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = " ".join(str(status.get("message", "")).split())[:500]
    except (ValueError, LookupError, TypeError, AttributeError):
        raise LostCommandError("the connection to a command was lost") from None
    # Words of containerd and runc. A runtime that cannot be started itself has nothing to retrieve.
    is_refused = "exec failed" in message or "unable to start container process" in message
    if is_refused and "unable to retrieve OCI runtime error" not in message:
        raise RefusedCommandError(message)
    raise LostCommandError(message)
