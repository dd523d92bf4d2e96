"""Frames over a stream socket between judge and program: four bytes of length, then an encoded
value.
"""

import os
import select
from typing import Any

from rollcast.processes.frames import LENGTH_BYTES, FrameError, content_size, pack
from rollcast.tasks.sandbox.clocks import Patience
from rollcast.tasks.sandbox.values import decode, encode

MAX_FRAME_BYTES = 128 << 20


class Channel:
    """One end.

    A program's end waits without limit; a judge's does not block and has limited patience.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._received = bytearray()

    def send(self, value: Any, *, patience: Patience | None = None) -> None:
        """Raises the errors of `encode`, FrameError, TimeoutError, and OSError if the other end is
        gone.
        """
        data = encode(value)
        if len(data) > MAX_FRAME_BYTES:
            raise FrameError(f"a message of {len(data)} bytes")
        unsent_bytes = memoryview(pack(data))
        while unsent_bytes:
            try:
                unsent_bytes = unsent_bytes[os.write(self.descriptor, unsent_bytes) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, patience)

    def receive(self, *, patience: Patience | None = None) -> Any:
        """Raises EOFError if the other end is gone, TimeoutError, FrameError for too many bytes,
        and the errors of `decode`.
        """
        size = content_size(self._take(LENGTH_BYTES, patience), MAX_FRAME_BYTES)
        return decode(self._take(size, patience))

    def _take(self, size: int, patience: Patience | None) -> bytes:
        while len(self._received) < size:
            try:
                chunk = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                self._wait(select.POLLIN, patience)
                continue
            if not chunk:
                raise EOFError("the other end is gone")
            self._received += chunk
        received_bytes = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return received_bytes

    def _wait(self, event: int, patience: Patience | None) -> None:
        """Only an end that does not block comes here."""
        poll = select.poll()
        poll.register(self.descriptor, event)
        while not poll.poll(None if patience is None else patience.milliseconds()):
            pass
