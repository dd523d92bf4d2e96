"""A judge's way to programs: ask the fork server for one, learn how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from io import FileIO

from rollcast.tasks.sandbox.channel import Channel
from rollcast.tasks.sandbox.functions import Functions
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.sandbox.streams import exchange
from rollcast.tasks.sandbox.verdict import ProgramError

END_SECONDS = 5.0
"""For the fork server to say how a program ended that is dead already, or was killed."""
HANG_UP_SECONDS = 0.2
"""For the same, of a program that hung up: longer and it lives on, and is killed."""
START, KILL = b"start", b"kill"


class Launcher:
    """One program at a time. The grading's clock starts when it is made."""

    def __init__(self, requests: socket.socket, limits: Limits) -> None:
        self._requests = requests
        self._seconds_per_test = limits.seconds_per_test
        self._end_of_grading = time.monotonic() + limits.deadline_seconds
        self._running = False

    @contextlib.contextmanager
    def functions(self, sources: list[str]) -> Iterator[Functions]:
        """A program whose functions can be called. Raises ProgramError where it does not even load."""
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with own, its:
            own.setblocking(False)
            self._start(its)
            its.close()
            try:
                functions = Functions(Channel(own.fileno()), self._deadline, self._why_it_ended)
                functions.load(sources)
                yield functions
            finally:
                self._end()

    def run_script(self, sources: list[str], text: str) -> str:
        """Standard output of the program, run as a script with `text` as its standard input.

        Raises ProgramError where it raises, exits with another code than 0, writes without end or takes too long.
        """
        deadline = self._deadline()
        own, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        program_input, feed = map(FileIO, os.pipe(), "rw")
        drain, program_output = map(FileIO, os.pipe(), "rw")
        with own, its, feed, drain:
            with program_input, program_output:
                own.setblocking(False)
                self._start(its, program_input.fileno(), program_output.fileno())
            try:
                its.close()
                with contextlib.suppress(OSError):  # it is dead already; its exit code says why
                    Channel(own.fileno()).send({"script": True, "sources": sources}, deadline=deadline)
                output = exchange(feed, drain, text.encode("utf-8", "surrogatepass"), deadline)
                code = self._exit_code(deadline)
            except TimeoutError:
                raise ProgramError("time") from None
            finally:
                self._end()
        if code != 0:
            raise _ended(code)
        return output.decode("utf-8", "replace")

    def _deadline(self) -> float:
        """By when a program must have done what it is asked now: the end of its test, or of the whole grading. Whoever
        is waited for then has failed, so that a grading which ends while the judge itself works is the judge's."""
        return min(time.monotonic() + self._seconds_per_test, self._end_of_grading)

    def _start(self, channel: socket.socket, *streams: int) -> None:
        socket.send_fds(self._requests, [START], [channel.fileno(), *streams])
        self._running = True

    def _exit_code(self, deadline: float) -> int:
        """The program's exit code, or minus the number of the signal that ended it. Raises TimeoutError."""
        self._requests.settimeout(max(0.01, deadline - time.monotonic()))
        answer = self._requests.recv(256)
        self._running = False
        return int(json.loads(answer)["code"])

    def _end(self) -> None:
        """Make sure that the program is dead."""
        if self._running:
            self._kill()

    def _kill(self) -> int:
        """The exit code: of one that was ending by itself already, its own. Raises TimeoutError."""
        self._requests.send(KILL)
        return self._exit_code(time.monotonic() + END_SECONDS)

    def _why_it_ended(self) -> ProgramError:
        """Of a program that hung up. Raises TimeoutError where the fork server does not say."""
        try:
            return _ended(self._exit_code(time.monotonic() + HANG_UP_SECONDS))
        except TimeoutError:
            code = self._kill()
        return ProgramError("garbled") if code == -signal.SIGKILL else _ended(code)


def _ended(code: int) -> ProgramError:
    """What an exit code says about a program that should have gone on, or ended with 0."""
    if code >= 0:
        return ProgramError("exit")
    if -code == signal.SIGXCPU:
        return ProgramError("time")
    return ProgramError("forbidden" if -code == signal.SIGSYS else "crash")
