"""Verifiers of others, on output nobody can trust, in worker processes that are killed at a deadline.

    grade_in_sandbox -> take an idle worker, or start one -> send one request -> answer -> the worker is idle again
                                                             deadline, death -> killed; the next request starts afresh

One line of JSON each way. A worker bounds its own memory and time as well, so that it does not outlive a parent that
was killed in the middle of a grading.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time

from rollcast.tasks.verifiers import Grade, find_verifier, run_verifier

MAX_ANSWER_BYTES = 4096
MEMORY_BYTES = 4 << 30
START_SECONDS = 60.0
"""Importing sympy takes seconds on a busy machine; the deadline of a grading begins after that."""


class Worker:
    """One process that grades. Not thread-safe: one request at a time."""

    def __init__(self) -> None:
        environment = {
            key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME", "LANG", "VIRTUAL_ENV") if key in os.environ
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rollcast.tasks.sandbox"],
            stdin=subprocess.PIPE,
            bufsize=0,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=environment | {"OMP_NUM_THREADS": "1"},
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._prepared: set[str] = set()
        self._buffer = b""

    def grade(self, verifier: str, completion: str, reference: str, deadline_seconds: float) -> Grade:
        """Raises TimeoutError or EOFError where no answer came; the worker is of no use then."""
        if verifier not in self._prepared:
            self._ask({"verifier": verifier, "seconds": START_SECONDS}, START_SECONDS)
            self._prepared.add(verifier)
        request = {
            "verifier": verifier,
            "completion": completion,
            "reference": reference,
            "seconds": deadline_seconds + 1.0,
        }
        return _decode_grade(self._ask(request, deadline_seconds))

    def kill(self) -> None:
        """End the process and whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait(timeout=10)

    def _ask(self, request: dict[str, object], seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        self._send(json.dumps(request).encode() + b"\n", deadline)
        return self._receive(deadline)

    def _send(self, data: bytes, deadline: float) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        left = memoryview(data)
        while left:
            if not select.select([], [stdin], [], max(0.0, deadline - time.monotonic()))[1]:
                raise TimeoutError("the worker does not read")
            try:
                left = left[os.write(stdin.fileno(), left) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise EOFError("the worker died") from error

    def _receive(self, deadline: float) -> bytes:
        stdout = self._process.stdout
        assert stdout is not None
        while b"\n" not in self._buffer:
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the worker does not answer")
            chunk = os.read(stdout.fileno(), MAX_ANSWER_BYTES)
            if not chunk or len(self._buffer) > MAX_ANSWER_BYTES:
                raise EOFError("the worker died or babbled")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line


def _decode_grade(line: bytes) -> Grade:
    try:
        answer = json.loads(line)
        reward, status = float(answer["reward"]), answer["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise EOFError("the worker's answer cannot be read") from error
    if status not in ("ok", "wrong", "error"):
        raise EOFError(f"the worker answered with status {status!r}")
    return Grade(reward, status)


class Sandbox:
    """Idle workers; as many exist as threads ever graded at once. Thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Worker] = []
        self._lock = threading.Lock()

    def grade(self, verifier: str, completion: str, reference: str, deadline_seconds: float) -> Grade:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or Worker()
        try:
            grade = worker.grade(verifier, completion, reference, deadline_seconds)
        except TimeoutError:
            worker.kill()
            return Grade(0.0, "timeout")
        except EOFError:
            worker.kill()
            return Grade(0.0, "error")
        except BaseException:
            worker.kill()
            raise
        with self._lock:
            self._idle.append(worker)
        return grade

    def close(self) -> None:
        with self._lock:
            workers, self._idle = self._idle, []
        for worker in workers:
            worker.kill()


_sandbox = Sandbox()
atexit.register(_sandbox.close)


def grade_in_sandbox(verifier: str, completion: str, reference: str, deadline_seconds: float) -> Grade:
    """Grade in a worker process of this process; a grader that hangs is `timeout`, one that dies is `error`."""
    return _sandbox.grade(verifier, completion, reference, deadline_seconds)


def main() -> None:
    """The worker: requests on standard input until it closes. SIGALRM's default action ends a hung grading."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    sys.stdout = sys.stderr  # a verifier that prints must not answer in our place
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, float(request["seconds"]))
        grade = _answer(request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(json.dumps({"reward": grade.reward, "status": grade.status}) + "\n")
        answers.flush()


def _answer(request: dict[str, str]) -> Grade:
    verifier = find_verifier(request["verifier"])
    if "completion" in request:
        return run_verifier(verifier, request["completion"], request["reference"])
    try:
        verifier.function("0", "0")  # imports what the verifier needs
    except Exception:
        return Grade(0.0, "error")
    return Grade(0.0, "wrong")


if __name__ == "__main__":
    main()
