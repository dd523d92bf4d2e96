"""Why a process ended, by its log: the deepest error of the last failure, on one line.

A log ends in one or more of these ways. The last one that names a reason counts:

    error: model.path = x: ...                      a sentence of Rollcast's commands and services
    2026-01-01T00:00:00Z [error    ] ... reason=..  a line of Rollcast's log
    Traceback ...                                   of a chain of errors the first, which caused
                                                    the others
    EngineDeadError: ... See stack trace (above)    names no reason: an earlier one does
    CancelledError                                  a request that was open at the end: the same
"""

import re
import traceback
from collections.abc import Sequence

MAX_REASON_CHARACTERS = 400
"""Longest reason that is not a sentence of Rollcast: some errors contain a whole file."""
SENTENCE = "error: "
_PREFIX = re.compile(
    r"^(\([^)]*pid=\d+\) )?((ERROR|WARNING|INFO|CRITICAL|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d "
    r"\[[^\]]*\] ?)?(?P<rest>.*)$"
)
"""vLLM's: which of its processes, the level, the time, the line of the source."""
_TRACEBACK = "Traceback (most recent call last):"
_ERROR_LINE = re.compile(
    r"^(?P<module>[A-Za-z_][\w.]*\.)?(?P<kind>[A-Za-z_]\w*)(: (?P<said>.*)|:?)$"
)
_LOG_LINE = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z \[(error|critical) *\] (?P<said>.*)$")
_CHAINED = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_POINTS_ELSEWHERE = re.compile(
    r"(trace|root cause|message)\W+above|See stack "
    r"trace|EngineDeadError|ChildFailedError|^CancelledError"
)
_LOOKUPS = ("KeyError", "IndexError", "AttributeError", "StopIteration", "StopAsyncIteration")
"""Errors of a lookup, which the code catches to raise one that says more."""


def failure_reason(log: str) -> str | None:
    """The reason at the end of a process's log, or None."""
    lines = [_without_prefix(line) for line in log.splitlines()]
    reasons = _reasons(lines)
    if not reasons:
        return None
    telling = [reason for reason in reasons if not points_elsewhere(reason)]
    reason = (telling or reasons)[-1]
    if reason.startswith(SENTENCE):
        return reason.removeprefix(SENTENCE)
    is_long = len(reason) > MAX_REASON_CHARACTERS
    return f"{reason[:MAX_REASON_CHARACTERS]}..." if is_long else reason


def deepest_error(error: BaseException) -> str:
    """The error that caused the others, as a log would have it."""
    return failure_reason("".join(traceback.format_exception(error))) or type(error).__name__


def points_elsewhere(reason: str) -> bool:
    """Whether the reason only says that another process has failed."""
    return _POINTS_ELSEWHERE.search(reason) is not None


def _without_prefix(line: str) -> str:
    match = _PREFIX.match(line)
    return line if match is None else match["rest"]


def _reasons(lines: Sequence[str]) -> list[str]:
    """Reasons in the order of the log, one for each chain of tracebacks."""
    chains: list[list[str]] = []
    is_chained = False
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() == _TRACEBACK:
            if not is_chained or not chains:
                chains.append([])
            error_text, number = _read_error(lines, number)
            chains[-1] += [error_text] if error_text else []
            is_chained = False
        elif line.strip() in _CHAINED:
            is_chained = True
        elif line.startswith(SENTENCE):
            chains += [[line], []]  # it stands alone: what follows is no part of it
            is_chained = False
        elif match := _LOG_LINE.match(line):
            chains += [[match["said"].strip()], []]
            is_chained = False
    return [_deepest(chain) for chain in chains if chain]


def _read_error(lines: Sequence[str], number: int) -> tuple[str | None, int]:
    """The error below a traceback's frames with its indented lines, and the number of the line
    after it.
    """
    while number < len(lines) and (lines[number].startswith(" ") or not lines[number]):
        number += 1
    if number == len(lines) or (match := _ERROR_LINE.match(lines[number])) is None:
        return None, number
    words = [match["kind"] + (f": {match['said']}" if match["said"] else "")]
    number += 1
    while number < len(lines) and lines[number].startswith(" ") and lines[number].strip():
        words.append(lines[number].strip())
        number += 1
    return " ".join(words), number


def _deepest(chain: Sequence[str]) -> str:
    for reason in chain[:-1]:
        if not reason.startswith(_LOOKUPS):
            return reason
    return chain[-1]
