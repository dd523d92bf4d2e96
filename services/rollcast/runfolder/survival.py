"""The one rule for what survives a restart, and which evaluations are complete enough for the
curve.

incarnation 1:  0  10  20  30 x killed at 34, checkpoint at 25
incarnation 2:            (25)  30  40 ...        the first 30 is lost, the second takes its place
                                                  of two surviving ones of one step
                                                  the newer takes the place too
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

NEVER_ENDED = 10**18
"""The last surviving step of an incarnation that was never cut off."""
MIN_GRADED_SHARE = 0.9
"""Least share of an evaluation's prompts that must be graded for the point to be part of the curve.
The missing prompts are rarely like the others: they are the longest, or those whose answers break a
grader."""
LEAST_GRADED_SHARE = MIN_GRADED_SHARE - 1e-9
"""MIN_GRADED_SHARE with room for rounding."""


class Made(Protocol):
    """Something that an incarnation made at a step."""

    @property
    def incarnation(self) -> int: ...

    @property
    def step(self) -> int: ...


Item = TypeVar("Item", bound=Made)


def surviving(items: Iterable[Item], starts: Mapping[int, int] | None = None) -> list[Item]:
    """The items that the newest weights descend from, by step.

    A trainer that was killed between its checkpoint and the answers to the evaluation of that step
    asks again. Both readings are of surviving weights; that of the newest incarnation counts. If
    one incarnation has two items of one step, the first counts.

    `starts`: incarnation -> the step from which it continued, if known. `NEVER_ENDED` means that it
    did not cut off its predecessor: its steps do not repeat earlier ones.
    """
    starts = starts or {}
    ordered = sorted(items, key=lambda item: item.incarnation)
    first_steps: dict[int, int] = {}
    for item in ordered:
        first_steps[item.incarnation] = min(item.step, first_steps.get(item.incarnation, item.step))
    last_steps = last_surviving_steps(first_steps, starts)
    items_by_version: dict[tuple[int, int], Item] = {}
    for item in ordered:
        if item.step <= last_steps[item.incarnation]:
            items_by_version.setdefault((item.incarnation, item.step), item)
    newest = {step: incarnation for incarnation, step in items_by_version}
    counts = [
        item
        for (incarnation, step), item in items_by_version.items()
        if incarnation == newest[step] or starts.get(newest[step]) == NEVER_ENDED
    ]
    return sorted(counts, key=lambda item: item.step)


def last_surviving_steps(
    first_steps: Mapping[int, int], starts: Mapping[int, int]
) -> dict[int, int]:
    """Incarnation -> the last of its steps that the newest weights descend from.

    A newer incarnation ends an older one at the step it continued from (`starts`). If that step is
    unknown, the older one ends before the first known step of the newer one (`first_steps`).
    """
    last_steps: dict[int, int] = {}
    bound = NEVER_ENDED
    for incarnation in sorted(first_steps.keys() | starts.keys(), reverse=True):
        last_steps[incarnation] = bound
        if incarnation in starts:
            bound = min(bound, starts[incarnation])
        elif incarnation in first_steps:
            bound = min(bound, first_steps[incarnation] - 1)
    return last_steps


def graded_share(graded: float | None, requested: float | None) -> float | None:
    """The share of the prompts asked that have a verdict; None if it is unknown or impossible."""
    if graded is None or requested is None or not 0 <= graded <= requested or requested == 0:
        return None
    return graded / requested


def is_complete(share: float | None) -> bool:
    """Whether enough prompts were graded. An unknown share counts as all of them."""
    return share is None or share >= LEAST_GRADED_SHARE
