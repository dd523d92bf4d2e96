"""A terminal with a user: a command in a pseudo-terminal, its screen as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte


class Terminal:
    """One command; use as a context. Killed at the end, its services die with it."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        environment: Mapping[str, str],
        columns: int = 80,
        lines: int = 24,
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self._master_fd, terminal_fd = pty.openpty()
        fcntl.ioctl(terminal_fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=terminal_fd,
            stdout=terminal_fd,
            stderr=terminal_fd,
            # Lines and columns are the terminal's to say: a runner's own are not this one's.
            env={
                **{
                    name: value
                    for name, value in os.environ.items()
                    if name not in ("COLUMNS", "LINES")
                },
                **{"TERM": "xterm-256color", "LANG": "C.UTF-8", **environment},
            },
            start_new_session=True,
            preexec_fn=lambda: (
                fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None
            ),  # so that Ctrl-C is a key
        )
        os.close(terminal_fd)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)
        os.close(self._master_fd)

    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)

    def screen(self) -> str:
        """The present screen, without blank lines below and blanks behind."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def full_output(self) -> str:
        """The whole output, including the lines that have scrolled away."""
        above = [
            "".join(line[column].data for column in range(self._screen.columns))
            for line in self._screen.history.top
        ]
        return "\n".join([*(line.rstrip() for line in above), self.screen()]).strip()

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Read on until it holds or the command ends; whether it held. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not condition():
            has_ended = self.process.poll() is not None
            self._read(0.1)
            if has_ended:
                return condition()
            if time.monotonic() > deadline:
                raise TimeoutError(self.full_output()[-3000:])
        return True

    def ctrl_c(self) -> None:
        os.write(self._master_fd, b"\x03")

    def end(self, seconds: float) -> int:
        """Read until the command has ended; its exit status."""
        self.wait(lambda: self.process.poll() is not None, seconds)
        while self._read(0.2):
            pass
        code = self.process.wait(seconds)
        return -code if code == -signal.SIGINT else code

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master_fd], [], [], seconds)[0]:
            return False
        try:
            # Bytes of one read
            output = os.read(self._master_fd, 1 << 16)
        except OSError:  # the other end is closed
            return False
        self._stream.feed(output)
        return bool(output)
