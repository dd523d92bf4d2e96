"""One completion graded by a verifier of the run: here, in a sandbox, or nowhere if the run file
does not name it.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from rollcast.config import function_loading
from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading, Tasks
from rollcast.config.verifiers import FunctionVerifier, VerifierSettings
from rollcast.tasks.code_reference import num_tests
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.verifiers import (
    CODE,
    MAX_COMPLETION_CHARACTERS,
    Grade,
    Verifier,
    find_verifier,
    is_built_in,
    refuse_to_run_here,
    run_verifier,
)


class Verifiers:
    """The verifiers that one run may use, by the names that its run file gives them: those that are
    built in, that the run file declares or names, and that installed packages add.

    A name that comes over a wire may say where code is: only those of the run file are followed.
    """

    def __init__(
        self, declared: Sequence[VerifierSettings] = (), named: Collection[str] = ()
    ) -> None:
        self.declared = {
            declaration.name: declaration
            for declaration in declared
            if not is_built_in(declaration.name)
        }
        self._named = frozenset(named)

    @classmethod
    def from_tasks(cls, tasks: Tasks) -> "Verifiers":
        return cls(tasks.verifiers, verifier_names(tasks))

    def find(self, name: str) -> Verifier:
        """The verifier of that name.

        Raises UserError if the run file names no such verifier and none is installed.
        """
        settings = self.declared.get(name)
        if isinstance(settings, FunctionVerifier):
            return replace(
                find_verifier(settings.code), place="process" if settings.trusted else "sandbox"
            )
        if settings is not None:
            return Verifier(lambda: refuse_to_run_here, "remote", name)
        if function_loading.is_function(name) and name not in self._named:
            raise UserError(
                f"verifier {name[:100]!r}: no data set of the run file names it; name it there"
            )
        return find_verifier(name)


def grading_seconds(settings: Grading, verifier: str, reference: str) -> float:
    """Deadline of one grading; programs with many tests get more time than an answer does.

    `reference` is JSON text.
    """
    return settings.seconds_for(num_tests(reference) if verifier == CODE else 0.0)


class Grades(Protocol):
    """Where verifiers of others work: a sandbox of this machine, or a service that has one.

    Thread-safe.
    """

    def grade(self, verifier: str, completion: str, reference: str) -> Grade: ...


def grade(
    verifier: str,
    completion: str,
    reference: str,
    *,
    sandbox: Grades | None = None,
    verifiers: Verifiers | None = None,
) -> Grade:
    """Grade one completion; `reference` is JSON text. Thread-safe; a sandboxed verifier blocks up
    to the deadline.

    grade("arithmetic", "90+2=...|102", '"102"') -> Grade(1.0, "ok")

    sandbox: needed by verifiers that do not work here. verifiers: None = those that are built in or
    installed. A service is not asked here (`rollcast.tasks.remote`). Raises UserError if there is
    no such verifier, or if this machine cannot contain what it runs. Whatever goes wrong inside a
    verifier is a status.
    """
    resolved_verifier = (
        verifiers.find(verifier) if verifiers is not None else find_verifier(verifier)
    )
    if len(completion) > MAX_COMPLETION_CHARACTERS:
        return Grade(0.0, "wrong")
    if resolved_verifier.place == "here":
        return run_verifier(resolved_verifier, completion, reference)
    assert sandbox is not None, verifier
    return sandbox.grade(verifier, completion, reference)
