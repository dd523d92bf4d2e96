"""Whether an answer or its reference is too much for a verifier, if a judge had to be ended."""

import hashlib
import threading

from rollcast.tasks.verifiers import Grade
from rollcast.telemetry.logging import get_logger

log = get_logger()


def was_ended(grade: Grade) -> bool:
    """Whether the judge's own actions ended it: it used up its CPU time or crashed.

    A busy machine is no reason.
    """
    return grade.status in ("timeout", "error") and grade.reason not in ("", "busy")


class UnreadableReferences:
    """References that are too much for their verifier: each costs its CPU time once, and is
    reported once.

    Decides whether answer or reference is at fault. Thread-safe.
    """

    def __init__(self) -> None:
        self._grades_by_key: dict[bytes, Grade] = {}
        self._lock = threading.Lock()

    def find_grade(self, verifier: str, reference: str) -> Grade | None:
        """The grade of every completion of that row; None if its reference is not known to be at
        fault.
        """
        return self._grades_by_key.get(_key(verifier, reference)) if self._grades_by_key else None

    def blame(
        self, failed_grade: Grade, ordinary: Grade | None, verifier: str, reference: str
    ) -> Grade:
        """The grade of an answer whose judge was ended.

        `ordinary`: of an ordinary answer to the same reference.
        """
        if ordinary is not None and ordinary.status in ("ok", "wrong"):
            return Grade(0.0, "wrong", failed_grade.reason)
        if ordinary is None or not was_ended(ordinary):
            return Grade(0.0, "timeout", failed_grade.reason, failed_grade.failure)
        # Longest reference in a report
        prefix = reference[:80]
        sentence = (
            f"its row is left out: {verifier} cannot evaluate the reference {prefix}, whatever "
            "the answer; simplify it in the data set or remove the row"
        )
        grade = Grade(0.0, "timeout", "reference", sentence)
        key = _key(verifier, reference)
        with self._lock:
            # Remembered at most; further ones cost their time again
            if key in self._grades_by_key or len(self._grades_by_key) >= 100_000:
                return grade
            self._grades_by_key[key] = grade
        log.error("a reference cannot be evaluated", verifier=verifier, told=sentence)
        return grade


def _key(verifier: str, reference: str) -> bytes:
    return hashlib.sha256(f"{verifier}\0{reference}".encode("utf-8", "surrogatepass")).digest()
