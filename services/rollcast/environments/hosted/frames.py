"""Messages between the generator, an environment and its programs: four bytes of length,
then JSON.
"""

import json
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

LENGTH_BYTES = 4


class FrameError(Exception):
    """The other end sent bytes that are no message."""


def pack_message(message: Mapping[str, Any]) -> bytes:
    """The bytes of one message."""
    content = json.dumps(message).encode()
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


async def read(stream: "asyncio.StreamReader") -> dict[str, Any]:
    """The next answer.

    Raises FrameError, and asyncio.IncompleteReadError if the other end is gone.
    """
    size = _answer_size(await stream.readexactly(LENGTH_BYTES))
    return _parse_message(await stream.readexactly(size))


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next request; None = the other end closed the connection. Blocks."""
    head = _receive_bytes(connection, LENGTH_BYTES)
    if head is None:
        return None
    # A row may hold the tests of a programming task, some megabytes
    content = _receive_bytes(connection, min(int.from_bytes(head, "big"), 64 << 20))
    return None if content is None else _parse_message(content)


def receive_answer(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """The next answer; None = the other end closed the connection.

    deadline: in monotonic seconds. Raises FrameError, TimeoutError.
    """
    head = _receive_bytes(connection, LENGTH_BYTES, deadline)
    if head is None:
        return None
    content = _receive_bytes(connection, _answer_size(head), deadline)
    return None if content is None else _parse_message(content)


def _answer_size(head: bytes) -> int:
    size = int.from_bytes(head, "big")
    # Larger than the longest text of an answer in any encoding: the environment's process shortens
    # texts itself
    if size > (4 << 20):
        raise FrameError(f"a message of {size} bytes")
    return size


def _receive_bytes(
    connection: socket.socket, size: int, deadline: float | None = None
) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        # Bytes of one read of a socket
        chunk = connection.recv(min(size - len(parts), 1 << 20))
        if not chunk:
            return None
        parts += chunk
    return bytes(parts)


def _parse_message(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FrameError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError(f"a message that is not an object but {type(message).__name__}")
    return message
