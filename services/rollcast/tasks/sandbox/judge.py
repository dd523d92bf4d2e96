"""The inside of a judge's process: read the request, grade, answer."""

from __future__ import annotations

import json
import os
import socket
from typing import NoReturn

from rollcast.tasks.sandbox.launcher import Launcher
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import CODE, Grade, find_verifier, run_verifier


def run_judge(connection: int, requests: socket.socket, verifier: str, limits: Limits) -> NoReturn:
    """One request from `connection`, one line of answer on it. Never returns."""
    parts = []
    while part := os.read(connection, 1 << 20):
        parts.append(part)
    request = json.loads(b"".join(parts))
    grade = _grade(verifier, request["completion"], request["reference"], requests, limits)
    os.write(connection, json.dumps({"reward": grade.reward, "status": grade.status, "reason": grade.reason}).encode())
    os._exit(0)


def _grade(verifier: str, completion: str, reference: str, requests: socket.socket, limits: Limits) -> Grade:
    if verifier != CODE:
        return run_verifier(find_verifier(verifier), completion, reference)
    from rollcast.tasks.sandbox.code_judge import grade_code

    try:
        return grade_code(completion, json.loads(reference), Launcher(requests, limits))
    except Exception:
        return Grade(0.0, "error")
