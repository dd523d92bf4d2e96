"""Messages over a stream: four bytes of length, then the content, which is JSON unless `pack` was
given something else.

The reader says how long a message may be. A longer one raises before its content is read, and
nothing is unpickled. What other people's code gives is written in bounded form. Standard library
alone: adapters load this file by its path, in the Python of another package.
"""

import json
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

LENGTH_BYTES = 4
MAX_REQUEST_BYTES = 64 << 20
"""A row may hold the tests of a programming task, some megabytes, and a request the messages of an
episode."""
MAX_ANSWER_BYTES = 4 << 20
"""Larger than the longest text of an answer in any encoding: the environment's process shortens
texts itself."""


class FrameError(Exception):
    """The other end sent bytes that are no message."""


def pack(content: bytes) -> bytes:
    """The bytes of one message."""
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


def pack_message(message: Mapping[str, Any]) -> bytes:
    return pack(json.dumps(message).encode())


def error_line(error: BaseException) -> str:
    """The kind and the text of an error, in one line of bounded length."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def numbers_by_name(values: Any) -> dict[str, float | None]:
    """The first hundred values; None for one that is no number, which the generator counts.

    A package's own code may give anything.
    """
    named: dict[str, float | None] = {}
    for name, value in list(values.items())[:100] if isinstance(values, dict) else ():
        try:
            named[str(name)[:100]] = None if isinstance(value, str | bytes) else float(value)
        except Exception:
            named[str(name)[:100]] = None
    return named


def content_size(head: bytes, max_bytes: int) -> int:
    """The size of the content that follows the bytes of its length. Raises FrameError."""
    size = int.from_bytes(head, "big")
    if size > max_bytes:
        raise FrameError(f"a message of {size} bytes")
    return size


async def read(stream: "asyncio.StreamReader", max_bytes: int) -> dict[str, Any]:
    """The next message.

    Raises FrameError, and asyncio.IncompleteReadError if the other end is gone.
    """
    size = content_size(await stream.readexactly(LENGTH_BYTES), max_bytes)
    return _parse_message(await stream.readexactly(size))


def receive(
    connection: socket.socket, max_bytes: int, deadline: float | None = None
) -> dict[str, Any] | None:
    """The next message; None = the other end closed the connection, even within a message.

    deadline: in monotonic seconds. None = blocks. Raises FrameError, TimeoutError.
    """
    head = _receive_bytes(connection, LENGTH_BYTES, deadline)
    if head is None:
        return None
    content = _receive_bytes(connection, content_size(head, max_bytes), deadline)
    return None if content is None else _parse_message(content)


def _receive_bytes(connection: socket.socket, size: int, deadline: float | None) -> bytes | None:
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
