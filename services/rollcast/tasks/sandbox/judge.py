"""The inside of a judge's process: read the request, grade, answer."""

import dataclasses
import json
import os
import socket
from typing import NoReturn

from rollcast.tasks.own_functions import failure
from rollcast.tasks.sandbox.launcher import Launcher
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import Grade, Verifier, run_verifier


def run_judge(
    connection: int, requests: socket.socket, own_waits: int, verifier: Verifier | None, limits: Limits
) -> NoReturn:
    """One request from `connection`, one line of answer on it; verifier: None = programs. Never returns.

    own_waits: a descriptor for how long this process waited for a core.
    """
    parts = []
    while part := os.read(connection, 1 << 20):
        parts.append(part)
    request = json.loads(b"".join(parts))
    completion = request["completion"]
    reference = request["reference"]
    if verifier is not None:
        grade = run_verifier(verifier, completion, reference)
    else:
        grade = _grade_program(completion, reference, Launcher(requests, own_waits, limits))
    os.write(connection, json.dumps(dataclasses.asdict(grade)).encode())
    os._exit(0)


def _grade_program(completion: str, reference: str, launcher: Launcher) -> Grade:
    from rollcast.tasks.sandbox.code_judge import grade_code

    try:
        return grade_code(completion, json.loads(reference), launcher)
    except Exception as error:
        return Grade(0.0, "error", failure=failure(error))
