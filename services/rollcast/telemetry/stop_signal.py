"""SIGTERM and SIGINT as a flag that can be waited for.

A threading.Event does not work: a signal that reaches another thread, or the main thread just
before it sleeps, does not wake it, and a handler that sets the event inside its own `wait` never
returns. The interpreter writes a byte for every signal, whichever thread it reached, and that byte
wakes the waiting thread.
"""

import signal
import socket
import time
from contextlib import suppress
from types import FrameType


class StopSignal:
    """True after SIGTERM or SIGINT. Create it, and wait for it, in the main thread."""

    def __init__(self) -> None:
        self._requested = False
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def __call__(self) -> bool:
        return self._requested

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the signal, at most `seconds` (None = without limit);
        returns whether it came.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._requested:
            rest = None if deadline is None else deadline - time.monotonic()
            if rest is not None and rest <= 0:
                return False
            self._woken.settimeout(rest)
            with suppress(TimeoutError):
                self._woken.recv(4096)
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
