"""Frames over a stream socket between judge and program: four bytes of length, then an encoded value."""

from __future__ import annotations

import os
import select
import time
from typing import Any

from rollcast.tasks.sandbox.values import decode, encode

MAX_FRAME_BYTES = 128 << 20


class OversizeError(ValueError):
    """A frame longer than MAX_FRAME_BYTES."""


class Channel:
    """One end. A program's end waits for ever; a judge's does not block and has a deadline for each wait."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._received = bytearray()

    def send(self, value: Any, *, deadline: float | None = None) -> None:
        """deadline: time.monotonic() by which the other end must have read.

        Raises what `encode` raises, OversizeError, TimeoutError, and OSError where the other end is gone.
        """
        data = encode(value)
        if len(data) > MAX_FRAME_BYTES:
            raise OversizeError(f"{len(data)} bytes in one frame")
        left = memoryview(len(data).to_bytes(4, "big") + data)
        while left:
            try:
                left = left[os.write(self.descriptor, left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline)

    def receive(self, *, deadline: float | None = None) -> Any:
        """Raises EOFError where the other end is gone, TimeoutError, OversizeError, and what `decode` raises."""
        size = int.from_bytes(self._take(4, deadline), "big")
        if size > MAX_FRAME_BYTES:
            raise OversizeError(f"{size} bytes in one frame")
        return decode(self._take(size, deadline))

    def _take(self, size: int, deadline: float | None) -> bytes:
        while len(self._received) < size:
            try:
                part = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                self._wait(select.POLLIN, deadline)
                continue
            if not part:
                raise EOFError("the other end is gone")
            self._received += part
        taken = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return taken

    def _wait(self, event: int, deadline: float | None) -> None:
        """Only an end that does not block comes here."""
        poll = select.poll()
        poll.register(self.descriptor, event)
        if not poll.poll(None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError("the other end does not answer")
