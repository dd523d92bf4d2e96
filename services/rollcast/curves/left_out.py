"""Sentences on data that was left out."""

from collections.abc import Callable
from pathlib import Path

from rollcast.runfolder.survival import MIN_GRADED_SHARE

Tell = Callable[[str], None]
"""Receives a sentence on data that was left out, or that was read differently from how it is written."""


def counted(number: int, what: str) -> str:
    """1 line, 2 lines."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def incomplete_points(count: int) -> str:
    """A phrase for evaluations that a curve leaves out because prompts are missing."""
    return f"{counted(count, 'evaluation')} with less than {100 * MIN_GRADED_SHARE:.0f} % of the prompts graded"


def left_out(source: Path | str, count: int, what: str, why: str) -> str:
    """`what`: one of those that are left out."""
    return f"{source}: {counted(count, what)} left out, {why}"
