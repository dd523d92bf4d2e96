"""Verifiers: was the completion right? Each is a function of the answer's text and the reference.

Verifiers that run a parser or code of others on the model's output do so in processes that can only compute and are
killed at a deadline (`sandbox`); the others finish in microseconds and run here. A package adds its own by an entry
point of the group `rollcast.verifiers` that names a function (completion, reference) -> reward; it runs in the sandbox.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rollcast.config.errors import UserError
from rollcast.tasks import countdown, knights_and_knaves
from rollcast.tasks.thinking import final_answer

ENTRY_POINT_GROUP = "rollcast.verifiers"
CODE = "code"
"""Runs programs that the model wrote: the one verifier with processes of two kinds."""
_UNESCAPED_DOLLAR = re.compile(r"(?<!\\)\$")

GradeStatus = Literal["ok", "wrong", "timeout", "error"]
VerifierFunction = Callable[[str, Any], float]
"""(completion text, decoded reference) -> reward in [0, 1]: 1 = right, 0 = wrong; what is between counts as that part
of a right answer."""


@dataclass(frozen=True, slots=True)
class Grade:
    """`ok` (a reward above 0) and `wrong` (0) are verdicts: a submitted program that crashes or runs into its own time
    limit is `wrong`. `timeout` (judge or parser hung) and `error` (it died, or was never reached) are the grader's own
    failure and no verdict: reward 0, counted apart, left out (`rollcast.trainer.control.pass_rate`).
    """

    reward: float
    status: GradeStatus
    reason: str = field(default="", compare=False)
    """What the sandbox stopped (`rollcast.tasks.sandbox.verdict.Reason`); empty where it stopped nothing."""


@dataclass(frozen=True, slots=True)
class Verifier:
    load: Callable[[], VerifierFunction]
    """Imports it: what a package adds is imported only in the sandbox."""
    sandboxed: bool


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
    """Delimiters around bare LaTeX; a price keeps its `\\$`, which delimits nothing."""
    return reference if _UNESCAPED_DOLLAR.search(reference) or "\\boxed" in reference else f"${reference}$"


def _of_the_answer(function: VerifierFunction) -> VerifierFunction:
    """The verifier of whole completions made of one that reads what stands after the think block."""
    return lambda completion, reference: function(final_answer(completion), reference)


def _built_in(function: VerifierFunction, *, sandboxed: bool = False) -> Verifier:
    return Verifier(lambda: function, sandboxed)


def _code(completion: str, reference: Any) -> float:
    raise AssertionError("the judge runs it: rollcast.tasks.sandbox.code_judge")


_BUILT_IN: dict[str, Verifier] = {
    "exact": _built_in(exact),
    "arithmetic": _built_in(arithmetic),
    "math": _built_in(math, sandboxed=True),
    CODE: _built_in(_code, sandboxed=True),
    "countdown": _built_in(_of_the_answer(countdown.countdown)),
    "knights-and-knaves": _built_in(_of_the_answer(knights_and_knaves.knights_and_knaves)),
}


def is_sandboxed(name: str) -> bool:
    """Whether the verifier works in the sandbox. All that packages add do, whether they are installed here or not."""
    return name not in _BUILT_IN or _BUILT_IN[name].sandboxed


@functools.cache
def find_verifier(name: str) -> Verifier:
    """The verifier of that name, where gradings are made. Raises UserError listing the known ones."""
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    installed = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    if name in installed.names:
        return Verifier(installed[name].load, sandboxed=True)
    known = ", ".join(sorted({*_BUILT_IN, *installed.names}))
    raise UserError(
        f"tasks.dataset.verifier = {name!r}: neither built in nor installed here; choose one of {known}, or install "
        "its package"
    )


def run_verifier(verifier: Verifier, completion: str, reference: str) -> Grade:
    """Call the function here; an exception of it, or a reward outside [0, 1], is status error."""
    try:
        reward = float(verifier.load()(completion, json.loads(reference)))
    except Exception:
        return Grade(0.0, "error")
    if not 0.0 <= reward <= 1.0:
        return Grade(0.0, "error")
    return Grade(reward, "ok" if reward > 0.0 else "wrong")
