"""The inside of a judge's process: read the request, grade, answer.

A judge that parses what the model wrote has as many seconds of CPU time as a grading may take. The kernel ends it with
SIGPROF when they are used, inside a C function too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
from typing import NoReturn

from rollcast.tasks.own_functions import failure
from rollcast.tasks.sandbox.launcher import Launcher
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade, Verifier, run_verifier

LEAST_CPU_SECONDS = 1e-3
"""A timer of 0 would never ring."""


def run_judge(connection: int, requests: socket.socket, verifier: Verifier | None, limits: Limits) -> NoReturn:
    """One request from `connection`, one line of answer on it; verifier: None = programs. Never returns."""
    if verifier is not None and verifier.ordinary_answer is not None:
        signal.setitimer(signal.ITIMER_PROF, max(LEAST_CPU_SECONDS, limits.deadline_seconds))
    parts = []
    while part := os.read(connection, 1 << 20):
        parts.append(part)
    request = json.loads(b"".join(parts))
    grade = _grade(verifier, request["completion"], request["reference"], requests, limits)
    os.write(connection, json.dumps(dataclasses.asdict(grade)).encode())
    os._exit(0)


def _grade(
    verifier: Verifier | None, completion: str, reference: str, requests: socket.socket, limits: Limits
) -> Grade:
    if verifier is not None:
        return run_verifier(verifier, completion, reference)
    from rollcast.tasks.sandbox.code_judge import grade_code

    try:
        return grade_code(completion, json.loads(reference), Launcher(requests, limits))
    except Exception as error:
        return Grade(0.0, "error", failure=failure(error))
