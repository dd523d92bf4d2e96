"""One environment's functions, as its process calls them, and how an answer is made of their
results.
"""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rollcast.environments.overdue import OverdueAnswer, OverdueError
from rollcast.environments.tools.answers import cut

MAX_TEXT_CHARACTERS = 200_000
"""Longest answer of a tool that leaves the process; the loop of episodes shortens it further for
the model."""
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Instance:
    """One environment that serves an episode."""

    tools: Mapping[str, Function]
    reset: Function | None = None
    reward: Function | None = None
    call_reward: Function | None = None
    metrics: Function | None = None


def interrupt_at_deadlines() -> None:
    """Make `deadline` work in this process."""
    signal.signal(signal.SIGALRM, _interrupt)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise OverdueError in the block after these seconds."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def answer_call(call: Callable[[], Any]) -> dict[str, Any]:
    """The answer to a call: its result, or its exception, which the model reads too.

    Raises OverdueError.
    """
    try:
        result = call()
        # Its __str__ may be the user's own, and fail too.
        text = _text(result)
    except Exception as error:
        return _make_text_answer(f"Error: {_reason(error)}")
    return {**_make_text_answer(text), "late": isinstance(result, OverdueAnswer)}


def _reason(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:  # its __str__ is the user's own
        return type(error).__name__


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise OverdueError


def _make_text_answer(text: str) -> dict[str, Any]:
    return {"text": cut(text, MAX_TEXT_CHARACTERS), "cut": len(text) > MAX_TEXT_CHARACTERS}


def _text(result: object) -> str:
    if isinstance(result, str):
        return result
    try:
        return json.dumps(result)
    except (TypeError, ValueError, RecursionError):
        return str(result)
