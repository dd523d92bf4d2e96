"""Messages between the generator and an environment: four bytes of length, then JSON."""

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

LENGTH_BYTES = 4
MAX_REQUEST_BYTES = 64 << 20
"""A row may hold the tests of a programming task, some megabytes."""
MAX_ANSWER_BYTES = 4 << 20
"""Larger than the longest text of an answer in any encoding: the environment's process shortens texts itself."""


class FrameError(Exception):
    """The other end sent bytes that are no message."""


def packed(message: Mapping[str, Any]) -> bytes:
    """The bytes of one message."""
    content = json.dumps(message).encode()
    return len(content).to_bytes(LENGTH_BYTES, "big") + content


async def read(stream: asyncio.StreamReader) -> dict[str, Any]:
    """The next answer. Raises FrameError, and asyncio.IncompleteReadError if the other end is gone."""
    size = int.from_bytes(await stream.readexactly(LENGTH_BYTES), "big")
    if size > MAX_ANSWER_BYTES:
        raise FrameError(f"a message of {size} bytes")
    return _parsed(await stream.readexactly(size))


def receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next request; None = the generator closed the connection. Blocks."""
    head = _taken(connection, LENGTH_BYTES)
    if head is None:
        return None
    content = _taken(connection, min(int.from_bytes(head, "big"), MAX_REQUEST_BYTES))
    return None if content is None else _parsed(content)


def _taken(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FrameError("a message that is not JSON") from error
    if not isinstance(message, dict):
        raise FrameError(f"a message that is no object but {type(message).__name__}")
    return message
