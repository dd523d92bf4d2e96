"""How much of an evaluation was graded. The pass rate of a part of the prompts is that of another data set."""

MIN_GRADED_SHARE = 0.9
"""Least share of an evaluation's prompts that must be graded for the point to be part of the curve. The missing prompts
are rarely like the others: they are the longest, or those whose answers break a grader."""
LEAST_GRADED_SHARE = MIN_GRADED_SHARE - 1e-9
"""The same with the rounding of a share."""


def graded_share(graded: float | None, asked: float | None) -> float | None:
    """The share of the prompts asked that have a verdict; None if it is unknown or impossible."""
    if graded is None or asked is None or not 0 <= graded <= asked or asked == 0:
        return None
    return graded / asked


def is_complete(share: float | None) -> bool:
    """Whether enough prompts were graded. An unknown share counts as all of them."""
    return share is None or share >= LEAST_GRADED_SHARE
