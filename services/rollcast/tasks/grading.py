"""Grading one completion, wherever its verifier has to run: here, or in a sandbox.

grade("arithmetic", "90+2=...|102", '"102"') -> Grade(1.0, "ok")
"""

from typing import Protocol

from rollcast.tasks.choice import Verifiers
from rollcast.tasks.sandbox.client import shared_sandbox
from rollcast.tasks.verifiers import Grade, find_verifier, run_verifier

MAX_COMPLETION_CHARACTERS = 1 << 20
"""A longer completion is graded wrong: no answer needs a megabyte."""


class Grades(Protocol):
    """Where verifiers of others work: a sandbox of this machine, or a service that has one. Thread-safe."""

    def grade(
        self, verifier: str, completion: str, reference: str, *, deadline_seconds: float | None = None
    ) -> Grade: ...


def grade(
    verifier: str,
    completion: str,
    reference: str,
    *,
    deadline_seconds: float | None = None,
    sandbox: Grades | None = None,
    verifiers: Verifiers | None = None,
) -> Grade:
    """Grade one completion; `reference` is JSON text. Thread-safe; a sandboxed verifier blocks up to the deadline.

    deadline_seconds: None = the sandbox's setting. sandbox: None = one with the default settings, shared. verifiers:
    None = those that are built in or installed. A service is not asked here (`rollcast.tasks.remote`).
    Raises UserError if there is no such verifier, or if this machine cannot contain what it runs. Whatever goes
    wrong inside a verifier is a status.
    """
    found = verifiers.find(verifier) if verifiers is not None else find_verifier(verifier)
    if len(completion) > MAX_COMPLETION_CHARACTERS:
        return Grade(0.0, "wrong")
    if found.place == "here":
        return run_verifier(found, completion, reference)
    return (sandbox or shared_sandbox()).grade(verifier, completion, reference, deadline_seconds=deadline_seconds)
