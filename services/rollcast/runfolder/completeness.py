"""How much of an evaluation was graded. The pass rate of a part of the prompts is that of another data set."""

from __future__ import annotations

MIN_GRADED_SHARE = 0.9
"""Of an evaluation's prompts. Below it the point is no part of the curve: the prompts that are lost are rarely like the
others (the longest, or those whose answers break a grader)."""
_ROUNDING = 1e-9


def graded_share(graded: float | None, asked: float | None) -> float | None:
    """The share of the prompts asked that have a verdict; None if it is unknown or impossible."""
    if graded is None or asked is None or not 0 <= graded <= asked or asked == 0:
        return None
    return graded / asked


def is_complete(share: float | None) -> bool:
    """Whether enough was graded; an unknown share is taken for all."""
    return share is None or share >= MIN_GRADED_SHARE - _ROUNDING
