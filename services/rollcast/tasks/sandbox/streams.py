"""A program's standard input and output, concurrently, with limits of time and size."""

import contextlib
import os
import select
from io import FileIO

from rollcast.tasks.sandbox.patience import Patiences
from rollcast.tasks.sandbox.verdict import ProgramError

MAX_OUTPUT_BYTES = 8 << 20


def exchange(feed: FileIO, drain: FileIO, data: bytes, patience: Patiences) -> bytes:
    """Write `data` to `feed` and close it while reading `drain` to its end.

    Raises TimeoutError when the patience is over, ProgramError("output") beyond MAX_OUTPUT_BYTES.
    """
    os.set_blocking(feed.fileno(), False)
    os.set_blocking(drain.fileno(), False)
    poll = select.poll()
    poll.register(drain, select.POLLIN)
    poll.register(feed, select.POLLOUT)
    to_feed = feed.fileno()
    drained = bytearray()
    left = memoryview(data)
    while True:
        for descriptor, _ in poll.poll(patience.milliseconds()):
            if descriptor == to_feed:
                left = _write(to_feed, left)
                if not left:
                    poll.unregister(to_feed)
                    feed.close()
                continue
            part = os.read(drain.fileno(), 1 << 16)
            if not part:
                return bytes(drained)
            drained += part
            if len(drained) > MAX_OUTPUT_BYTES:
                raise ProgramError("output")


def _write(descriptor: int, data: memoryview) -> memoryview:
    """The rest to write; empty if the other end no longer reads."""
    with contextlib.suppress(BlockingIOError):
        try:
            return data[os.write(descriptor, data) :]
        except BrokenPipeError:
            return data[:0]
    return data
