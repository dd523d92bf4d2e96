"""The grader's side of the sandbox: one fork server per verifier, started when first needed."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import get_args

from rollcast.config.tasks import Grading
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.sandbox.protections import require_gvisor, require_protections
from rollcast.tasks.time_limits import grading_seconds
from rollcast.tasks.verifiers import CODE, Grade, GradeStatus
from rollcast.telemetry.logging import get_logger

log = get_logger()

START_SECONDS = 120.0
"""Importing sympy takes seconds on a busy machine; the deadline of a grading begins after that."""
GRACE_SECONDS = 10.0
"""Beyond a grading's deadline for the fork server to say that it passed."""
MAX_ANSWER_BYTES = 1 << 16
_INHERITED = ("PYTHONPATH", "VIRTUAL_ENV", "LANG", "LD_LIBRARY_PATH")
"""All that a fork server sees of the environment: no address, password or token of ours is among them."""
_SETTINGS = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Sandbox:
    """Grades in processes that can do nothing but compute. Thread-safe."""

    def __init__(self, settings: Grading | None = None) -> None:
        self._settings = settings or Grading()
        self._servers: dict[str, ForkServerClient] = {}
        self._lock = threading.Lock()

    def check(self, verifier: str) -> None:
        """Raises UserError where programs are to be graded and this machine cannot contain them."""
        if verifier != CODE:
            return
        if self._settings.sandbox == "strict":
            require_protections()
        elif self._settings.sandbox == "gvisor":
            require_gvisor()

    def start(self, verifier: str) -> bool:
        """Have a verifier's processes ready before its first grading; False where they do not start."""
        return self._server(verifier) is not None

    def grade(
        self,
        verifier: str,
        completion: str,
        reference: str,
        *,
        deadline_seconds: float | None = None,
        limits: Limits | None = None,
    ) -> Grade:
        """One grading in processes of its own: a judge that hangs is `timeout`, one that dies `error`. What its program
        does, too slowly as well, is the program's own: `wrong`.

        deadline_seconds, limits: None = the settings'. The clock starts when the processes do.
        Raises UserError as `check` does.
        """
        self.check(verifier)
        limits = limits or Limits(
            deadline_seconds=deadline_seconds or grading_seconds(self._settings, verifier, reference),
            seconds_per_test=self._settings.seconds_per_test,
            memory_bytes=self._settings.memory_mib << 20,
        )
        server = self._server(verifier)
        if server is None:
            return Grade(0.0, "error")
        grade = server.grade(json.dumps({"completion": completion, "reference": reference}).encode(), limits)
        if grade is None:
            self._discard(verifier, server)
            return Grade(0.0, "error")
        return grade

    def close(self) -> None:
        """Ends every process."""
        with self._lock:
            servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            server.close()

    def _server(self, verifier: str) -> ForkServerClient | None:
        with self._lock:
            if verifier not in self._servers:
                server = ForkServerClient(verifier)
                if why := server.wait_until_ready():
                    log.error("the sandbox does not start", verifier=verifier, reason=why)
                    server.close()
                    return None
                self._servers[verifier] = server
            return self._servers[verifier]

    def _discard(self, verifier: str, server: ForkServerClient) -> None:
        """The next grading starts a fresh one."""
        with self._lock:
            if self._servers.get(verifier) is server:
                del self._servers[verifier]
        server.close()


class ForkServerClient:
    """One process and the control connection to it."""

    def __init__(self, verifier: str) -> None:
        self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environment = {key: os.environ[key] for key in _INHERITED if key in os.environ}
        with its_end:
            self._process = subprocess.Popen(  # noqa: S603  # our own module
                [sys.executable, "-P", "-m", "rollcast.tasks.sandbox.fork_server", str(its_end.fileno()), verifier],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(its_end.fileno(),),
                start_new_session=True,
                cwd="/",
                env=environment | _SETTINGS,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> str | None:
        """None when it is; otherwise why not: it takes too long, or its verifier cannot be imported."""
        self._control.settimeout(START_SECONDS)
        try:
            answer = json.loads(self._control.recv(4096))
        except (OSError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return answer.get("failed")  # type: ignore[no-any-return]

    def grade(self, request: bytes, limits: Limits) -> Grade | None:
        """None where the fork server itself is dead or hangs."""
        deadline = time.monotonic() + limits.deadline_seconds + GRACE_SECONDS
        own, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with own:
            try:
                with its_end:
                    socket.send_fds(self._control, [json.dumps(limits.as_json()).encode()], [its_end.fileno()])
                _send(own, request, deadline)
                answer = _receive(own, deadline)
            except OSError:
                return None
        return _decode(answer)

    def close(self) -> None:
        """It kills its children when `control` closes, and they die with it in any case."""
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    connection.settimeout(max(0.01, deadline - time.monotonic()))
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # killed while reading: the answer says why
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """To the end, which the fork server makes after the judge's."""
    answer = b""
    while True:
        connection.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            part = connection.recv(4096)
        except ConnectionResetError:  # killed with some of the request unread
            return answer
        if not part:
            return answer
        answer += part
        if len(answer) > MAX_ANSWER_BYTES:
            raise OSError("the judge babbles")


def _decode(answer: bytes) -> Grade | None:
    verdict, ended = None, None
    for line in filter(None, answer.split(b"\n")):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            ended = record.get("ended", ended)
            verdict = record if "status" in record else verdict
    if ended is None:
        return None
    if ended == "deadline":  # the judge itself was at work
        return Grade(0.0, "timeout", "time")
    try:
        grade = Grade(float(verdict["reward"]), verdict["status"], str(verdict["reason"])) if verdict else None
    except (KeyError, TypeError, ValueError):
        grade = None
    if grade is None or grade.status not in get_args(GradeStatus) or not 0.0 <= grade.reward <= 1.0:
        return Grade(0.0, "error")
    return grade


@functools.cache
def shared_sandbox() -> Sandbox:
    """With the default settings; ended with this process."""
    sandbox = Sandbox()
    atexit.register(sandbox.close)
    return sandbox
