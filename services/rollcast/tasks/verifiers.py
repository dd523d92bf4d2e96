"""Verifiers: was the completion right? Each is a function of the answer's text and the reference.

Verifiers that run a parser or code of others on the model's output do so in processes that can only
compute and are killed at a deadline (`sandbox`); the others finish in microseconds and run here.
Functions of a user's own, named by file, import path or an entry point of the group
`rollcast.verifiers`, get the whole row in place of the reference.
"""

import functools
import importlib.metadata
import json
import re
import reprlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from rollcast.config import function_loading
from rollcast.config.errors import UserError
from rollcast.tasks import countdown, math_verifier
from rollcast.tasks.reward_signatures import adapt_signature
from rollcast.tasks.thinking import final_answer

ENTRY_POINT_GROUP = "rollcast.verifiers"
CODE = "code"
"""Runs programs that the model wrote: the one verifier with processes of two kinds."""
MAX_COMPLETION_CHARACTERS = 1 << 20
"""A longer completion is graded wrong: no answer needs a megabyte."""
_NO_NUMBER = float("nan")
MIN_REWARD = 2.0**-149
"""The smallest float32 above 0. Rewards travel as float32: a smaller one would arrive as 0 with the
status `ok`."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60

GradeStatus = Literal["ok", "wrong", "timeout", "error"]
VerifierFunction = Callable[[str, Any], float]
"""(completion text, decoded reference) -> reward in [0, 1]: 1 = right, 0 = wrong; a value in
between counts as that part of a right answer. A user's own gets (completion text, row)."""
Place = Literal["here", "sandbox", "process", "remote"]
"""The place of a verifier: in the process that asks, in processes that can only compute, in plain
ones, as a service."""


@dataclass(frozen=True, slots=True)
class Grade:
    """`ok` (a reward above 0) and `wrong` (0) are verdicts: a submitted program that crashes or
    runs into its own time limit is `wrong`, and so is an answer that is too much for the parser.
    `timeout` (judge hung, or the reference is too much for the parser) and `error` (it died, or was
    never reached) are the grader's own failure and no verdict: reward 0, counted apart, left out
    (`rollcast.trainer.control.pass_rate`).
    """

    reward: float
    status: GradeStatus
    reason: str = field(default="", compare=False)
    """The action that the sandbox stopped (`rollcast.tasks.sandbox.limits.Reason`); empty if it
    stopped nothing."""
    failure: str = field(default="", compare=False)
    """The reason of a status that is not a verdict: a sentence, with file and line if they are
    known."""


@dataclass(frozen=True, slots=True)
class Verifier:
    load: Callable[[], VerifierFunction]
    """Imports it: code of a user is imported only in the process that runs it."""
    place: Place
    source: str
    """The name under which a process of its own finds it again."""
    ordinary_answer: str | None = None
    """For a verifier that parses text of the model: an answer on which it always has a verdict,
    unless the reference itself is too much for it. Decides who is at fault if another answer takes
    all the CPU time or ends the process."""

    @property
    def sandboxed(self) -> bool:
        return self.place == "sandbox"


def exact(completion: str, reference: Any) -> float:
    """1 if the answer is the reference, apart from white space around it."""
    return float(final_answer(completion).strip() == str(reference).strip())


def arithmetic(completion: str, reference: Any) -> float:
    """1 if the text after the last `|` is the number, written without anything around it."""
    _, marker, answer = completion.rpartition("|")
    return float(bool(marker) and answer == str(reference))


def knights_and_knaves(completion: str, reference: Any) -> float:
    """1 if the last statements of the answer name each person once, with the right kind.

    An answer is such as `Zoey is a knight. Jacob is a knave.`; `reference`: {name: "knight" |
    "knave"}. As many of the last statements count as there are persons, so that naming both kinds
    for one of them is wrong.
    """
    kinds = {str(name).casefold(): kind for name, kind in reference.items()}
    names = "|".join(re.escape(name) for name in sorted(kinds, key=len, reverse=True))
    gap = r"[\s*_]{0,8}"  # bounded: an answer that consists of spaces must not cost minutes
    statement = re.compile(
        rf"\b({names})\b{gap}(?:is|:|=|-)?{gap}(?:an?\s)?{gap}\b(knight|knave)\b"
    )
    named_kinds = statement.findall(final_answer(completion).casefold())[-len(kinds) :]
    return float(len(named_kinds) == len(kinds) and dict(named_kinds) == kinds)


def _countdown(completion: str, reference: Any) -> float:
    return countdown.countdown(final_answer(completion), reference)


def refuse_to_run_here(completion: str, reference: Any) -> float:
    raise AssertionError(
        "rollcast.tasks.sandbox.code_judge runs programs, rollcast.tasks.remote asks services"
    )


BUILT_IN = {
    "exact": Verifier(lambda: exact, "here", "exact"),
    "arithmetic": Verifier(lambda: arithmetic, "here", "arithmetic"),
    "math": Verifier(lambda: math_verifier.math, "sandbox", "math", r"\boxed{271}"),
    CODE: Verifier(lambda: refuse_to_run_here, "sandbox", CODE),
    "countdown": Verifier(lambda: _countdown, "here", "countdown"),
    "knights-and-knaves": Verifier(lambda: knights_and_knaves, "here", "knights-and-knaves"),
}


def is_built_in(name: str) -> bool:
    """Whether the verifier is one of ours: the others get whole rows."""
    return name in BUILT_IN


def answers_at_once(name: str) -> bool:
    """Whether the verifier is graded in the process that asks.

    No other is, whether it is installed here or not.
    """
    return name in BUILT_IN and BUILT_IN[name].place == "here"


def find_verifier(name: str) -> Verifier:
    """The verifier of that name, where gradings are made; whoever asks vouches for a name that says
    where code is.

    Raises UserError listing the known ones.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if function_loading.is_function(name):
        source = function_loading.absolute(name)
        return Verifier(
            lambda: adapt_signature(function_loading.load_function(source)), "sandbox", source
        )
    return _find_installed(name)


@functools.cache
def _find_installed(name: str) -> Verifier:
    """What a package adds; its metadata is looked for once."""
    installed = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    if name in installed.names:
        return Verifier(lambda: adapt_signature(installed[name].load()), "sandbox", name)
    names = ", ".join(sorted({*BUILT_IN, *installed.names}))
    raise UserError(
        f"tasks.dataset.verifier = {name!r}: neither built in nor installed here; choose one of "
        f"{names}, install its package, or name a function as ./reward.py:grade"
    )


def run_verifier(verifier: Verifier, completion: str, reference: str) -> Grade:
    """Call the function here; an exception of it, or any result except a reward in [0, 1], gives
    status error with its reason."""
    function = None
    decoded_reference = None
    try:
        function = verifier.load()
        decoded_reference = json.loads(reference)
        reward = function(completion, decoded_reference)
    except Exception as error:
        failure_sentence = function_loading.failure(
            error,
            function,
            decoded_reference,
            signature="; a verifier is called with (completion, row)",
            in_sandbox=verifier.sandboxed,
        )
        return Grade(0.0, "error", failure=failure_sentence)
    return make_grade(reward, "the verifier returned", function_loading.definition(function))


def make_grade(reward: Any, reward_source: str, location: str = "") -> Grade:
    """The verdict that a reward is; of anything else a sentence: `reward_source`, the thing itself,
    and its `place`.
    """
    try:
        number = _NO_NUMBER if isinstance(reward, str | bytes) else float(reward)
    except Exception:  # what a user's object does when it is asked for its number
        number = _NO_NUMBER
    if 0.0 <= number < MIN_REWARD:
        return Grade(0.0, "wrong")
    if MIN_REWARD <= number <= 1.0:
        return Grade(number, "ok")
    return Grade(
        0.0,
        "error",
        failure=(
            f"{reward_source} {_SHORT.repr(reward)}{location}; a reward is a number from 0 to 1"
        ),
    )
