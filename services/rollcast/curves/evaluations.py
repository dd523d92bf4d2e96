"""The evaluations of one run, from whatever source, as far as its surviving history goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from rollcast.config.bounds import MOST_COMPUTE, MOST_STEPS
from rollcast.runfolder.completeness import is_complete
from rollcast.runfolder.survival import surviving

MAX_EVALUATIONS = 5_000
"""Of one run; further ones are refused and counted."""
MIN_COMPUTE = 1e-12
"""Nanoseconds of one device; less would only underflow."""
ROUNDING = 1e-9
"""Device-hours by which the start-up may seem larger than the compute it is a part of."""
MIN_STANDARD_ERROR = 1e-6
"""A smaller one would need more than 10^11 completions: it counts as unknown."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One reading of the pass rate."""

    run: str
    dataset: str
    incarnation: int
    step: int
    pass_rate: float
    compute: float
    """Device-hours of the surviving history."""
    standard_error: float | None
    trained_tokens: float | None
    samples: float | None
    at: float
    """Unix seconds when it was closed or first seen."""
    truncation_ratio: float | None = None
    """Share of the rollouts trained on about then that the token budget cut off."""
    start_up: float | None = None
    """Of `compute`, device-hours of engines that started; None = nobody measured them."""
    devices: float | None = None
    """Allocated when it was asked for."""
    graded_share: float | None = None
    """Of the prompts asked, those with a verdict; None = all, as far as anybody knows."""

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes it one reading of its run."""
        return (self.dataset, self.incarnation, self.step)


def checked(evaluation: CurvePoint) -> CurvePoint:
    """The evaluation as `known` has it, within the bounds of a live source.

    Raises:
        ValueError: a value that the curve needs is out of bounds.
    """
    if not (
        evaluation.run and len(evaluation.run) <= 200 and evaluation.run.isprintable() and "/" not in evaluation.run
    ):
        raise ValueError(f"run {evaluation.run[:50]!r}: give 1 to 200 printable characters without a slash")
    if not (len(evaluation.dataset) <= 200 and evaluation.dataset.isprintable()):
        raise ValueError(f"dataset {evaluation.dataset[:50]!r}: give at most 200 printable characters")
    if not 0 <= evaluation.pass_rate <= 1:
        raise ValueError(f"pass rate {evaluation.pass_rate:g} lies outside [0, 1]")
    if not (evaluation.compute == 0 or MIN_COMPUTE <= evaluation.compute <= MOST_COMPUTE):
        raise ValueError(
            f"compute {evaluation.compute:g} is neither 0 nor in [{MIN_COMPUTE:g}, {MOST_COMPUTE:g}] device-hours"
        )
    if not (0 <= evaluation.step <= MOST_STEPS and 0 <= evaluation.incarnation <= MOST_STEPS):
        raise ValueError(f"step {evaluation.incarnation}.{evaluation.step} is out of bounds")
    return known(evaluation)


def known(evaluation: CurvePoint) -> CurvePoint:
    """The evaluation, those of its values that cannot be set to None: they count as unknown."""
    return replace(
        evaluation,
        standard_error=known_error(evaluation.standard_error),
        trained_tokens=_at_least_zero(evaluation.trained_tokens),
        samples=_at_least_zero(evaluation.samples),
        truncation_ratio=_share(evaluation.truncation_ratio),
        start_up=_part_of(evaluation.compute, evaluation.start_up),
        devices=_at_least_zero(evaluation.devices),
        graded_share=_share(evaluation.graded_share),
    )


def known_error(value: float | None) -> float | None:
    """The standard error, or None where it is none."""
    return value if value is not None and MIN_STANDARD_ERROR <= value <= 1 else None


def _share(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None


def _part_of(whole: float, value: float | None) -> float | None:
    """At most the whole: sums round."""
    return min(value, whole) if value is not None and 0 <= value <= whole + ROUNDING else None


def _at_least_zero(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None


class SortedOut(NamedTuple):
    """The evaluations of a log that make its curve."""

    kept: tuple[CurvePoint, ...]
    num_lost: int
    """Of steps that are not in the surviving history."""
    num_incomplete: int
    """Of the surviving ones, those with too few prompts graded."""


@dataclass
class EvaluationLog:
    """Every evaluation of one run on one data set that was ever read, lost ones too."""

    evaluations: dict[tuple[str, int, int], CurvePoint] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """Incarnation -> the step from which it continued, where the trainer told it."""
    limit: int = MAX_EVALUATIONS

    def add(self, evaluation: CurvePoint) -> bool:
        """Whether it is new. The first reading of a version stands.

        Raises:
            OverflowError: the log is full.
        """
        if evaluation.key in self.evaluations:
            return False
        if len(self.evaluations) >= self.limit:
            raise OverflowError(f"run {evaluation.run!r} has more than {self.limit} evaluations")
        self.evaluations[evaluation.key] = evaluation
        return True

    def surviving(self) -> tuple[CurvePoint, ...]:
        """The complete evaluations of the surviving history, one for each step, in order of compute (it rises with the
        step)."""
        return self.sorted_out().kept

    def sorted_out(self) -> SortedOut:
        """The surviving ones, and how many were left out for which reason."""
        made = surviving(self.evaluations.values(), self.starts)
        kept = [item for item in made if is_complete(item.graded_share)]
        return SortedOut(
            kept=tuple(sorted(kept, key=lambda item: (item.compute, item.step))),
            num_lost=len(self.evaluations) - len(made),
            num_incomplete=len(made) - len(kept),
        )
