"""The grader's side of the sandbox: one fork server per verifier, started when first needed."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from rollcast.config.function_loading import MAX_SENTENCE_CHARACTERS, is_function
from rollcast.config.tasks import Grading
from rollcast.processes.server_process import ServerProcess
from rollcast.processes.variables import users_variables
from rollcast.tasks.grading import Verifiers, grading_seconds
from rollcast.tasks.sandbox.cores import one_core
from rollcast.tasks.sandbox.limits import BUSY, TRUSTED, VERDICT_SECONDS, Limits, Reason
from rollcast.tasks.sandbox.protections import require_gvisor, require_protections
from rollcast.tasks.sandbox.unreadable_references import UnreadableReferences, was_ended
from rollcast.tasks.verifiers import CODE, Grade, GradeStatus, Verifier

START_SECONDS = 120.0
"""Importing sympy takes seconds on a busy machine; the deadline of a grading begins after that."""
RETRY_SECONDS = 600.0
"""Pause after a failed start until the next try; gradings in between fail immediately with the same
reason."""
GRACE_SECONDS = 10.0
"""Time after a grading's deadline for the fork server to report that it passed."""
_INHERITED = ("PYTHONPATH", "VIRTUAL_ENV", "LANG", "LD_LIBRARY_PATH")
"""All that a fork server sees of the environment: no address, password or token of ours is among
them. One of a trusted verifier sees the user's environment without our own variables."""
_SETTINGS = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_SIGNALS: dict[Any, Reason] = {
    -signal.SIGXCPU: "time",
    -signal.SIGSEGV: "crash",
    -signal.SIGBUS: "crash",
    -signal.SIGABRT: "crash",
}
"""The reason that ended a judge, by its exit code. Not SIGKILL, which the kernel sends if the
machine is out of memory."""


class Sandbox:
    """Grades in processes that can only compute; verifiers that are trusted in plain ones.

    Thread-safe.
    """

    def __init__(self, settings: Grading | None = None, verifiers: Verifiers | None = None) -> None:
        """verifiers: None = those that are built in or installed."""
        self._settings = settings or Grading()
        self._verifiers = verifiers or Verifiers()
        self._servers: dict[str, ForkServerClient] = {}
        self._starts: dict[str, _Start] = {}
        self._starting: set[ForkServerClient] = set()
        self._closed = False
        self._lock = threading.Lock()
        """Held for moments only: never while a process starts."""
        self._unreadable = UnreadableReferences()

    def check(self, verifier: str) -> None:
        """Raises UserError where programs are to be graded and this machine cannot contain them."""
        if verifier != CODE:
            return
        if self._settings.sandbox == "strict":
            require_protections()
        elif self._settings.sandbox == "gvisor":
            require_gvisor()

    def start(self, verifier: str) -> str:
        """Have a verifier's processes ready before its first grading; the reason why they do not
        start, empty if they do."""
        server = self._server(verifier)
        return server if isinstance(server, str) else ""

    def is_started(self, verifier: str) -> bool:
        """Whether `start` would return without waiting: the processes are ready, or are known not
        to start.
        """
        with self._lock:
            start = self._starts.get(verifier)
            return verifier in self._servers or (
                start is not None and time.monotonic() < start.next_try
            )

    def grade(
        self,
        verifier: str,
        completion: str,
        reference: str,
        *,
        deadline_seconds: float | None = None,
        limits: Limits | None = None,
    ) -> Grade:
        """One grading in processes of its own: a judge that hangs is `timeout`, one that dies
        `error`. What its program does, too slowly as well, is the program's own: `wrong`.

        deadline_seconds, limits: None = the settings'. The clock starts when the processes do: once
        no other grading of this machine uses the core. Raises UserError as `check` does.
        """
        self.check(verifier)
        limits = limits or Limits(
            deadline_seconds=deadline_seconds
            or grading_seconds(self._settings, verifier, reference),
            seconds_per_test=self._settings.seconds_per_test,
            memory_bytes=self._settings.memory_mib << 20,
        )
        if known_grade := self._unreadable.find_grade(verifier, reference):
            return known_grade
        server = self._server(verifier)
        if isinstance(server, str):
            return Grade(0.0, "error", failure=server)
        grade = _on_one_core(server, completion, reference, limits)
        if grade is None:
            self._discard(verifier, server)
            return Grade(0.0, "error", failure="the process that starts its gradings died or hung")
        if server.ordinary_answer is not None and was_ended(grade):
            ordinary = _on_one_core(server, server.ordinary_answer, reference, limits)
            return self._unreadable.blame(grade, ordinary, verifier, reference)
        if grade.status == "timeout":
            return replace(grade, failure=f"it gave no reward within {limits.deadline_seconds:g} s")
        return grade

    def close(self) -> None:
        """Ends every process, for good."""
        with self._lock:
            self._closed = True
            servers = [*self._servers.values(), *self._starting]
            self._servers = {}
        for server in servers:
            server.close()

    def _server(self, verifier: str) -> "ForkServerClient | str":
        """A server, or the reason why there is none.

        Waits for one that starts, not for those of other verifiers.
        """
        with self._lock:
            start = self._starts.setdefault(verifier, _Start())
        with start.lock:
            with self._lock:
                if verifier in self._servers:
                    return self._servers[verifier]
            if time.monotonic() < start.next_try:
                return start.failure
            return self._start(verifier, start)

    def _start(self, verifier: str, start: "_Start") -> "ForkServerClient | str":
        resolved_verifier = self._verifiers.find(verifier)
        with self._lock:
            if self._closed:
                return "its processes were ended"
            server = ForkServerClient(resolved_verifier)
            self._starting.add(server)
        failure_reason = server.wait_until_ready()
        with self._lock:
            self._starting.remove(server)
            if not failure_reason and not self._closed:
                self._servers[verifier] = server
                return server
        server.close()
        start.failure = f"it cannot be imported: {failure_reason}"
        start.next_try = time.monotonic() + RETRY_SECONDS
        return start.failure

    def _discard(self, verifier: str, server: "ForkServerClient") -> None:
        """The next grading starts a fresh one."""
        with self._lock:
            if self._servers.get(verifier) is server:
                del self._servers[verifier]
        server.close()


def _on_one_core(
    server: "ForkServerClient", completion: str, reference: str, limits: Limits
) -> Grade | None:
    """None if the fork server itself is dead or hangs."""
    request = json.dumps({"completion": completion, "reference": reference}).encode()
    with one_core() as is_free:
        return server.grade(request, limits) if is_free else Grade(0.0, "error", "busy", BUSY)


@dataclass
class _Start:
    """Lock of one verifier's fork server: its holder starts it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    failure: str = ""
    next_try: float = -math.inf
    """time.monotonic() before which the failure stands."""


class ForkServerClient(ServerProcess):
    """The fork server of one verifier."""

    def __init__(self, verifier: Verifier) -> None:
        self.ordinary_answer = verifier.ordinary_answer
        trusted = verifier.place == "process"
        inherited = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        super().__init__(
            [sys.executable, "-P", "-m", "rollcast.tasks.sandbox.fork_server"],
            [verifier.source, *([TRUSTED] if trusted else [])],
            users_variables() if trusted else inherited | _SETTINGS,
            stdin=subprocess.DEVNULL,
            stderr=None if trusted else subprocess.DEVNULL,
            cwd=None if is_function(verifier.source) else "/",
        )

    def wait_until_ready(self) -> str | None:
        """None when it is; otherwise why not: it takes too long, or its verifier cannot be
        imported.
        """
        failure_reason: str | None = self.read_first_answer(START_SECONDS).get("failed")
        return failure_reason

    def grade(self, request: bytes, limits: Limits) -> Grade | None:
        """None if the fork server itself is dead or hangs."""
        deadline = time.monotonic() + limits.backstop_seconds + VERDICT_SECONDS + GRACE_SECONDS
        grader_socket, judge_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with grader_socket:
            try:
                with judge_socket:
                    socket.send_fds(
                        self.control,
                        [json.dumps(asdict(limits)).encode()],
                        [judge_socket.fileno()],
                    )
                _send(grader_socket, request, deadline)
                answer = _receive(grader_socket, deadline)
            except OSError:
                return None
        return _decode(answer)


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    connection.settimeout(max(0.01, deadline - time.monotonic()))
    with contextlib.suppress(
        BrokenPipeError, ConnectionResetError
    ):  # killed while reading: the answer says why
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """Reads to the end, which the fork server writes after the judge's."""
    answer = b""
    while True:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            chunk = connection.recv(4096)
        except ConnectionResetError:  # killed with some of the request unread
            return answer
        if not chunk:
            return answer
        answer += chunk
        # A verdict is short; a longer answer is of a broken process
        if len(answer) > (1 << 16):
            raise OSError("the judge babbles")


def _decode(answer: bytes) -> Grade | None:
    verdict = None
    end_reason = None
    code = None
    for line in filter(None, answer.split(b"\n")):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            end_reason = record.get("ended", end_reason)
            code = record["code"] if isinstance(record.get("code"), int) else code
            verdict = record if "status" in record else verdict
    if end_reason is None:
        return None
    if end_reason == "deadline":  # the judge itself was at work
        return Grade(0.0, "timeout", "time")
    if end_reason == "waited":
        return Grade(0.0, "error", "busy", BUSY)
    if verdict is None:
        how = "was stopped" if not isinstance(code, int) else f"ended with exit code {code}"
        how = f"was killed by signal {-code}" if isinstance(code, int) and code < 0 else how
        return Grade(
            0.0, "error", _SIGNALS.get(code, ""), f"its process {how} before it gave a reward"
        )
    try:
        failure_sentence = str(verdict.get("failure", ""))[:MAX_SENTENCE_CHARACTERS]
        grade = Grade(
            float(verdict["reward"]), verdict["status"], str(verdict["reason"]), failure_sentence
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        grade = None
    if grade is None or grade.status not in get_args(GradeStatus) or not 0.0 <= grade.reward <= 1.0:
        return Grade(0.0, "error", failure="its process answered with something else than a reward")
    return grade
