"""The one rule of what survives a restart.

incarnation 1:  0  10  20  30 x killed at 34, checkpoint at 25
incarnation 2:            (25)  30  40 ...        the first 30 is lost, the second takes its place
                                                  of two surviving ones of one step the newer takes the place too
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

NEVER_ENDED = 10**18
"""The last surviving step of an incarnation that nothing cut short."""


class Made(Protocol):
    """What an incarnation made at a step."""

    @property
    def incarnation(self) -> int: ...

    @property
    def step(self) -> int: ...


Item = TypeVar("Item", bound=Made)


def surviving(items: Iterable[Item], starts: Mapping[int, int] | None = None) -> list[Item]:
    """Those that the newest weights descend from, by step.

    A trainer that was killed between its checkpoint and the answers to the evaluation of that very step asks again:
    both readings are of surviving weights, and the newest incarnation's counts. Of two of one incarnation and step the
    first stands.

    `starts`: incarnation -> the step from which it continued, where that is known. One that is `NEVER_ENDED` ended
    nothing: its steps are no repetitions of others.
    """
    starts = starts or {}
    ordered = sorted(items, key=lambda item: item.incarnation)
    first: dict[int, int] = {}
    for item in ordered:
        first[item.incarnation] = min(item.step, first.get(item.incarnation, item.step))
    last = last_surviving_steps(first, starts)
    kept: dict[tuple[int, int], Item] = {}
    for item in ordered:
        if item.step <= last[item.incarnation]:
            kept.setdefault((item.incarnation, item.step), item)
    newest = {step: incarnation for incarnation, step in kept}
    counts = [
        item
        for (incarnation, step), item in kept.items()
        if incarnation == newest[step] or starts.get(newest[step]) == NEVER_ENDED
    ]
    return sorted(counts, key=lambda item: item.step)


def last_surviving_steps(first: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
    """Incarnation -> the last of its steps that the newest weights descend from.

    A newer incarnation ends an older one at the step it continued from (`starts`); where that step is not known, before
    the first step of which it is known to have made something (`first`).
    """
    last: dict[int, int] = {}
    bound = NEVER_ENDED
    for incarnation in sorted(first.keys() | starts.keys(), reverse=True):
        last[incarnation] = bound
        if incarnation in starts:
            bound = min(bound, starts[incarnation])
        elif incarnation in first:
            bound = min(bound, first[incarnation] - 1)
    return last
