"""Grading: was the completion right? Each verifier is a function of the answer's text and the reference.

    grade("arithmetic", "90+2=...|102", '"102"') -> Grade(1.0, "ok")

Verifiers that run a parser or code of others on the model's output do so in a process that is killed at a deadline
(`sandbox`); the others finish in microseconds and run here. A package adds its own by an entry point of the group
`rollcast.verifiers` that names a function (completion, reference) -> reward; those run in the sandbox too.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rollcast.config.errors import UserError

ENTRY_POINT_GROUP = "rollcast.verifiers"
MAX_COMPLETION_CHARACTERS = 1 << 20
"""A longer completion is graded wrong: no answer needs a megabyte."""

GradeStatus = Literal["ok", "wrong", "timeout", "error"]
VerifierFunction = Callable[[str, Any], float]
"""(completion text, decoded reference) -> reward in [0, 1]; above 0 counts as right."""


@dataclass(frozen=True, slots=True)
class Grade:
    """`timeout` and `error` speak of the grader, not of the answer: their reward is 0 and they are counted apart."""

    reward: float
    status: GradeStatus


@dataclass(frozen=True, slots=True)
class Verifier:
    function: VerifierFunction
    sandboxed: bool


def final_answer(completion: str) -> str:
    """What stands after the last `</think>`. Thinking that never ended holds no answer."""
    _, marker, answer = completion.rpartition("</think>")
    if marker:
        return answer
    return "" if "<think>" in completion else completion


def exact(completion: str, reference: Any) -> float:
    """1 where the answer is the reference, apart from white space around it."""
    return float(final_answer(completion).strip() == str(reference).strip())


def arithmetic(completion: str, reference: Any) -> float:
    """1 where what stands after the last `|` is the number, written without anything around it."""
    _, marker, answer = completion.rpartition("|")
    return float(bool(marker) and answer == str(reference))


def math(completion: str, reference: Any) -> float:
    """1 where math-verify finds the answer after the think block equal to the reference (LaTeX or an expression)."""
    import math_verify

    # Its own time limits use SIGALRM; the sandbox's deadline stands in for them.
    gold = math_verify.parse(_in_math_mode(str(reference)), parsing_timeout=None)
    if not gold:
        raise ValueError(f"reference {reference!r} is not an expression that math-verify can read")
    answer = math_verify.parse(final_answer(completion), parsing_timeout=None)
    return float(math_verify.verify(gold, answer, timeout_seconds=None))


def _in_math_mode(reference: str) -> str:
    return reference if "$" in reference or "\\boxed" in reference else f"${reference}$"


_BUILT_IN: dict[str, Verifier] = {
    "exact": Verifier(exact, sandboxed=False),
    "arithmetic": Verifier(arithmetic, sandboxed=False),
    "math": Verifier(math, sandboxed=True),
}


@functools.cache
def find_verifier(name: str) -> Verifier:
    """The verifier of that name. Raises UserError listing the known ones."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    installed = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    if name in installed.names:
        return Verifier(installed[name].load(), sandboxed=True)
    known = ", ".join(sorted({*_BUILT_IN, *installed.names}))
    raise UserError(f"tasks.dataset.verifier = {name!r}: no such verifier; choose one of {known}")


def grade(verifier: str, completion: str, reference: str, *, deadline_seconds: float = 10.0) -> Grade:
    """Grade one completion; `reference` is JSON text. Thread-safe; a sandboxed verifier blocks up to the deadline.

    Raises UserError where there is no such verifier. Whatever goes wrong inside a verifier is a status.
    """
    found = find_verifier(verifier)
    if len(completion) > MAX_COMPLETION_CHARACTERS:
        return Grade(0.0, "wrong")
    if found.sandboxed:
        from rollcast.tasks.sandbox import grade_in_sandbox

        return grade_in_sandbox(verifier, completion, reference, deadline_seconds)
    return run_verifier(found, completion, reference)


def run_verifier(verifier: Verifier, completion: str, reference: str) -> Grade:
    """Call the function here; an exception of it, or a reward outside [0, 1], is status error."""
    try:
        reward = float(verifier.function(completion, json.loads(reference)))
    except Exception:
        return Grade(0.0, "error")
    if not 0.0 <= reward <= 1.0:
        return Grade(0.0, "error")
    return Grade(reward, "ok" if reward > 0.0 else "wrong")
