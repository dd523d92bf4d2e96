"""Messages that are too long, cut off, or none at all cost a reader neither memory nor time."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from rollcast.processes.frames import (
    LENGTH_BYTES,
    FrameError,
    content_size,
    pack,
    pack_message,
    read,
    receive,
)

MESSAGE = {"text": "ä\ud800", "number": 3}
MAX_BYTES = 1_000
NO_MESSAGES = {
    b"\xff\xff\xff\xff": "a message of 4294967295 bytes",
    pack(b"x" * (MAX_BYTES + 1)): "a message of 1001 bytes",
    pack(b""): "a message that is not JSON",
    pack(b"{"): "a message that is not JSON",
    pack(b"[" * MAX_BYTES): "a message that is not JSON",
    pack(b"\xff"): "a message that is not JSON",
    pack(b"[1]"): "a message that is not an object but list",
}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    first, second = socket.socketpair()
    with first, second:
        yield first, second


async def read_once(content: bytes) -> object:
    stream = asyncio.StreamReader()
    stream.feed_data(content)
    stream.feed_eof()
    return await read(stream, MAX_BYTES)


async def test_a_message_arrives_as_it_was_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    sender, reader = ends
    sender.sendall(2 * pack_message(MESSAGE))
    assert receive(reader, MAX_BYTES) == receive(reader, MAX_BYTES) == MESSAGE
    assert await read_once(pack_message(MESSAGE)) == MESSAGE


@pytest.mark.parametrize("content", NO_MESSAGES)
async def test_bytes_that_are_no_message(
    content: bytes, ends: tuple[socket.socket, socket.socket]
) -> None:
    sender, reader = ends
    sender.sendall(content)
    with pytest.raises(FrameError, match=f"^{NO_MESSAGES[content]}$"):
        receive(reader, MAX_BYTES, time.monotonic() + 60.0)
    with pytest.raises(FrameError, match=f"^{NO_MESSAGES[content]}$"):
        await read_once(content)


@pytest.mark.parametrize("num_bytes", [0, 2, LENGTH_BYTES, LENGTH_BYTES + 5])
async def test_a_sender_that_is_gone_within_a_message(
    num_bytes: int, ends: tuple[socket.socket, socket.socket]
) -> None:
    sender, reader = ends
    part = pack_message(MESSAGE)[:num_bytes]
    sender.sendall(part)
    sender.close()
    assert receive(reader, MAX_BYTES) is None
    with pytest.raises(asyncio.IncompleteReadError):
        await read_once(part)


def test_a_sender_of_single_bytes_cannot_stretch_the_deadline(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sender, reader = ends
    is_over = threading.Event()

    def trickle() -> None:
        sender.sendall(pack(b"x" * MAX_BYTES)[:LENGTH_BYTES])
        while not is_over.wait(0.05):
            sender.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            receive(reader, MAX_BYTES, time.monotonic() + 0.5)
    finally:
        is_over.set()
        thread.join()


def test_the_longest_message_is_allowed() -> None:
    assert content_size(pack(b"x" * MAX_BYTES)[:LENGTH_BYTES], MAX_BYTES) == MAX_BYTES
