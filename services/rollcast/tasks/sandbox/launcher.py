"""A judge's way to programs: ask the fork server for one, talk to it, watch its clocks, learn how
it ended.

START, descriptors  ->            fork
                    <-  pid, a descriptor for how long the program waited for a core
KILL                ->            (only if it is too slow, or lives on after it hung up)
                    <-  exit code, processor time, time waited
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator
from io import FileIO
from typing import Any, NamedTuple

from rollcast.processes.frames import FrameError
from rollcast.tasks.sandbox.channel import Channel
from rollcast.tasks.sandbox.clocks import (
    ClockReading,
    Patience,
    TimeLimit,
    cpu_seconds,
    waited_seconds,
)
from rollcast.tasks.sandbox.limits import Limits, ProgramError

ANSWER_SECONDS = 60.0
"""Time for the fork server to start a program, or to report the end of a dead one. Long: it may
have to wait for a core."""
MAX_OUTPUT_BYTES = 8 << 20
"""Standard output of one run."""
START = b"start"
KILL = b"kill"


class _Running(NamedTuple):
    pid: int
    waits: int


class Launcher:
    """One program at a time. The grading's clocks start when it is made."""

    def __init__(self, requests: socket.socket, own_waits: int, limits: Limits) -> None:
        """`own_waits`: a descriptor for how long this process waited for a core."""
        self._requests = requests
        self._own_waits = own_waits
        self._limits = limits
        self._running: _Running | None = None
        self._finished_usage = ClockReading(0.0, 0.0, 0.0)
        """What programs took that have ended; their wall time is not counted apart."""
        self._grading = self._time_limit(limits.deadline_seconds)

    @contextlib.contextmanager
    def functions(self, sources: list[str]) -> "Iterator[Functions]":
        """A program whose functions can be called.

        Raises RaisedError if the sources raise, and ProgramError.
        """
        judge_socket, program_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with judge_socket, program_socket:
            judge_socket.setblocking(False)
            self._start(program_socket)
            program_socket.close()
            try:
                functions = Functions(Channel(judge_socket.fileno()), self)
                functions.ask({"script": False, "sources": sources})
                yield functions
            finally:
                self._end()

    def run_script(self, sources: list[str], text: str) -> str:
        """Standard output of the program, run as a script with `text` as its standard input.

        Raises ProgramError if it raises, exits with another code than 0, writes without end or
        takes too long.
        """
        patience = self.patience()
        judge_socket, program_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        program_input, feed = map(FileIO, os.pipe(), "rw")
        drain, program_output = map(FileIO, os.pipe(), "rw")
        with judge_socket, program_socket, feed, drain:
            with program_input, program_output:
                judge_socket.setblocking(False)
                self._start(program_socket, program_input.fileno(), program_output.fileno())
            try:
                program_socket.close()
                with contextlib.suppress(OSError):  # it is dead already; its exit code says why
                    Channel(judge_socket.fileno()).send(
                        {"script": True, "sources": sources}, patience=patience
                    )
                output = _exchange(feed, drain, text.encode("utf-8", "surrogatepass"), patience)
                code = self._patient_exit_code(patience)
            except TimeoutError:
                raise self.why_it_is_late(patience) from None
            finally:
                self._end()
        if code != 0:
            raise _make_exit_error(code)
        return output.decode("utf-8", "replace")

    def patience(self) -> Patience:
        """Deadlines of one question that is asked now: the limits of its test and of the whole
        grading. The program is to blame for either; a grading that ends while the judge itself
        works is the judge's fault."""
        return Patience(self._read, self._time_limit(self._limits.seconds_per_test), self._grading)

    def _time_limit(self, seconds: float) -> TimeLimit:
        return TimeLimit(seconds, self._read(), self._limits.least_wait_seconds)

    def _read(self) -> ClockReading:
        """CPU time of this process and its programs together: work that a program causes here
        counts as its own.
        """
        cpu = self._finished_usage.cpu + time.process_time()
        waited = self._finished_usage.waited + waited_seconds(self._own_waits)
        if self._running is not None:
            waited += waited_seconds(self._running.waits)
            with contextlib.suppress(OSError):  # it has ended; its exit code brings the number
                cpu += cpu_seconds(self._running.pid)
        return ClockReading(time.monotonic(), cpu, waited)

    def _start(self, channel: socket.socket, *streams: int) -> None:
        socket.send_fds(self._requests, [START], [channel.fileno(), *streams])
        self._requests.settimeout(ANSWER_SECONDS)
        answer, descriptors, _, _ = socket.recv_fds(self._requests, 256, 1)
        self._running = _Running(int(json.loads(answer)["pid"]), descriptors[0])

    def _exit_code(self, seconds: float) -> int:
        """The program's exit code, or minus the number of the signal that ended it.

        Raises TimeoutError.
        """
        self._requests.settimeout(max(0.01, seconds))
        answer = json.loads(self._requests.recv(256))
        if self._running is not None:
            os.close(self._running.waits)
        self._running = None
        self._finished_usage = ClockReading(
            0.0,
            self._finished_usage.cpu + answer["cpu"],
            self._finished_usage.waited + answer["waited"],
        )
        return int(answer["code"])

    def _patient_exit_code(self, patience: Patience) -> int:
        """The exit code of a program that should end by itself.

        Raises TimeoutError when the patience is over.
        """
        while True:
            try:
                return self._exit_code(patience.milliseconds() / 1000)
            except TimeoutError:
                patience.milliseconds()

    def _end(self) -> None:
        """Make sure that the program is dead."""
        if self._running is not None:
            self._kill()

    def _kill(self) -> int:
        """The exit code: of one that was ending by itself already, its own. Raises TimeoutError."""
        self._requests.send(KILL)
        return self._exit_code(ANSWER_SECONDS)

    def why_it_ended(self) -> ProgramError:
        """The end of a program that hung up.

        Raises TimeoutError if the fork server does not report it.
        """
        try:
            # Time for a program that hung up to end; one that takes longer is killed
            return _make_exit_error(self._exit_code(0.2))
        except TimeoutError:
            code = self._kill()
        return ProgramError("garbled") if code == -signal.SIGKILL else _make_exit_error(code)

    def why_it_is_late(self, patience: Patience) -> ProgramError:
        """It is killed first: a process that waits for a core shows how long it waited only once it
        got one.
        """
        self._end()
        return ProgramError("busy" if patience.only_waited() else "time")


def _make_exit_error(code: int) -> ProgramError:
    """What an exit code says about a program that should have gone on, or ended with 0."""
    if code >= 0:
        return ProgramError("exit")
    if -code == signal.SIGXCPU:
        return ProgramError("time")
    return ProgramError("forbidden" if -code == signal.SIGSYS else "crash")


class RaisedError(Exception):
    """The program's function raised. `kind`: the exception's class, as the program names it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Functions:
    """The functions of a program. After a failure that ends the program every call fails alike: a
    test's own `except` cannot hide it."""

    def __init__(self, channel: Channel, launcher: Launcher) -> None:
        self._channel = channel
        self._launcher = launcher
        self.failure: ProgramError | None = None

    def call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of the program's function of that name, or of that method of a new `Solution`.

        Raises RaisedError; ProgramError if the program is finished.
        """
        return self.ask({"name": name, "arguments": arguments, "keywords": keywords})

    def ask(self, question: dict[str, Any]) -> Any:
        """The answer to one frame, as `rollcast.tasks.sandbox.program` gives it.

        Raises as `call` does.
        """
        if self.failure is None:
            try:
                return self._answer(question)
            except ProgramError as error:
                self.failure = error
        raise self.failure

    def _answer(self, question: dict[str, Any]) -> Any:
        patience = self._launcher.patience()
        try:
            self._channel.send(question, patience=patience)
        except TimeoutError:
            raise self._launcher.why_it_is_late(patience) from None
        except OSError:
            raise self._launcher.why_it_ended() from None
        try:
            answer = self._channel.receive(patience=patience)
        except TimeoutError:
            raise self._launcher.why_it_is_late(patience) from None
        except (EOFError, OSError):
            raise self._launcher.why_it_ended() from None
        except FrameError:
            raise ProgramError("output") from None
        except (ValueError, RecursionError, MemoryError):
            raise ProgramError("garbled") from None
        if not isinstance(answer, dict) or len(answer.keys() & {"value", "raised"}) != 1:
            raise ProgramError("garbled")
        if "raised" in answer:
            raise RaisedError(str(answer["raised"]), str(answer.get("message", "")))
        return answer["value"]


def _exchange(feed: FileIO, drain: FileIO, data: bytes, patience: Patience) -> bytes:
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
    unsent_bytes = memoryview(data)
    while True:
        for descriptor, _ in poll.poll(patience.milliseconds()):
            if descriptor == to_feed:
                unsent_bytes = _write(to_feed, unsent_bytes)
                if not unsent_bytes:
                    poll.unregister(to_feed)
                    feed.close()
                continue
            chunk = os.read(drain.fileno(), 1 << 16)
            if not chunk:
                return bytes(drained)
            drained += chunk
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
