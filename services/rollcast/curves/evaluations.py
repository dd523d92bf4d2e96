"""The evaluations of one run, as far as its surviving history goes.

incarnation 1:  0  10  20  30 x killed at 34, checkpoint at 25
incarnation 2:            (25)  30  40 ...        the first 30 leaves the curve, the second takes its place
                                                   of two surviving readings of one step the newer takes the place too
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rollcast.scaling.curve import Array, Curve

MAX_EVALUATIONS = 5_000
"""Of one run; further ones are refused and counted."""
MAX_COMPUTE = 1e12
MIN_COMPUTE = 1e-12
"""Nanoseconds of one device; less would only underflow."""
MAX_STEP = 10**12
MIN_STANDARD_ERROR = 1e-6
"""A smaller one would need more than 10^11 completions: it counts as unknown."""


@dataclass(frozen=True, slots=True)
class Evaluation:
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

    @property
    def key(self) -> tuple[str, int, int]:
        """What makes it one reading of its run."""
        return (self.dataset, self.incarnation, self.step)


def checked(evaluation: Evaluation) -> Evaluation:
    """The evaluation, its unknown values set to None.

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
    if not (evaluation.compute == 0 or MIN_COMPUTE <= evaluation.compute <= MAX_COMPUTE):
        raise ValueError(
            f"compute {evaluation.compute:g} is neither 0 nor in [{MIN_COMPUTE:g}, {MAX_COMPUTE:g}] device-hours"
        )
    if not (0 <= evaluation.step <= MAX_STEP and 0 <= evaluation.incarnation <= MAX_STEP):
        raise ValueError(f"step {evaluation.incarnation}.{evaluation.step} is out of bounds")
    return Evaluation(
        run=evaluation.run,
        dataset=evaluation.dataset,
        incarnation=evaluation.incarnation,
        step=evaluation.step,
        pass_rate=evaluation.pass_rate,
        compute=evaluation.compute,
        standard_error=known_error(evaluation.standard_error),
        trained_tokens=_at_least_zero(evaluation.trained_tokens),
        samples=_at_least_zero(evaluation.samples),
        at=evaluation.at,
        truncation_ratio=_share(evaluation.truncation_ratio),
    )


def known_error(value: float | None) -> float | None:
    """The standard error, or None where it is none."""
    return value if value is not None and MIN_STANDARD_ERROR <= value <= 1 else None


def _share(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None


def _at_least_zero(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None


@dataclass
class EvaluationLog:
    """Every evaluation of one run on one data set that was ever read, lost ones too."""

    evaluations: dict[tuple[str, int, int], Evaluation] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """Incarnation -> the step from which it continued, where the trainer told it."""

    def add(self, evaluation: Evaluation) -> bool:
        """Whether it is new. The first reading of a version stands.

        Raises:
            OverflowError: the log is full.
        """
        if evaluation.key in self.evaluations:
            return False
        if len(self.evaluations) >= MAX_EVALUATIONS:
            raise OverflowError(f"run {evaluation.run!r} has more than {MAX_EVALUATIONS} evaluations")
        self.evaluations[evaluation.key] = evaluation
        return True

    def surviving(self) -> tuple[Evaluation, ...]:
        """The evaluations of the surviving history, one for each step, in order of compute (which rises with the step).

        A trainer that was killed between its checkpoint and the answers to the evaluation of that very step asks again:
        both readings are of surviving weights, and the newest incarnation's counts.
        """
        first: dict[int, int] = {}
        for item in self.evaluations.values():
            first[item.incarnation] = min(item.step, first.get(item.incarnation, item.step))
        last = last_surviving_steps(first, self.starts)
        kept = {
            item.step: item
            for item in sorted(self.evaluations.values(), key=lambda item: item.incarnation)
            if item.step <= last[item.incarnation]
        }
        return tuple(sorted(kept.values(), key=lambda item: (item.compute, item.step)))


def last_surviving_steps(first: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
    """Incarnation -> the last of its steps that the newest weights descend from.

    A newer incarnation ends an older one at the step it continued from (`starts`); where that step is not known, before
    the first step that the newer one evaluated (`first`).
    """
    last: dict[int, int] = {}
    bound = MAX_STEP
    for incarnation in sorted(first.keys() | starts.keys(), reverse=True):
        last[incarnation] = bound
        if incarnation in starts:
            bound = min(bound, starts[incarnation])
        elif incarnation in first:
            bound = min(bound, first[incarnation] - 1)
    return last


def curve_of(evaluations: tuple[Evaluation, ...], x: Array, name: str) -> Curve:
    """The curve of pass rate against `x` (n,), one value for each evaluation; step 0 is compute 0.

    The trainer's standard errors are those of the sampling with the prompts held fixed, so the number of prompts is not
    given to the curve: it would take the choice of prompts out a second time.

    Raises:
        ValueError: no evaluation at x > 0 (yet).
    """
    errors = [item.standard_error if item.standard_error is not None else math.nan for item in evaluations]
    x = np.where([item.step == 0 for item in evaluations], 0.0, x)
    return Curve.from_points(
        x,
        [item.pass_rate for item in evaluations],
        errors,
        name=name,
        truncation_ratio=known_truncation([item.truncation_ratio for item in evaluations]),
    )


def known_truncation(ratios: Sequence[float | None]) -> Array | None:
    """(n,) in order of compute, what is unknown taken from its neighbours: an unknown ratio accuses nobody.

    None where none is known.
    """
    known = [place for place, ratio in enumerate(ratios) if ratio is not None]
    if not known:
        return None
    return np.asarray(np.interp(np.arange(len(ratios)), known, [ratio for ratio in ratios if ratio is not None]))
