"""What was left out, in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rollcast.runfolder.completeness import MIN_GRADED_SHARE

Tell = Callable[[str], None]
"""Takes a sentence on what was left out, or was read otherwise than it stands."""


def counted(number: int, what: str) -> str:
    """1 line, 2 lines."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def incomplete_points(count: int) -> str:
    """Evaluations that a curve leaves out because prompts are missing."""
    return f"{counted(count, 'evaluation')} with less than {100 * MIN_GRADED_SHARE:.0f} % of the prompts graded"


def left_out(source: Path | str, count: int, what: str, why: str) -> str:
    """`what`: one of those that are left out."""
    return f"{source}: {counted(count, what)} left out, {why}"
