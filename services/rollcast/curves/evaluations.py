"""Evaluations of runs: the one function that makes them of a sheet, their bounds, and the log that sorts them out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.config.bounds import MOST_COMPUTE, MOST_STEPS
from rollcast.curves.columns import TIME_UNITS
from rollcast.curves.curve_sheet import CurveSheet, malformed, refuse_mixture
from rollcast.curves.sheet import Mask, Numbers, Sheet
from rollcast.runfolder.completeness import is_complete
from rollcast.runfolder.survival import NEVER_ENDED, surviving
from rollcast.scaling.law.curve import Array

MAX_EVALUATIONS = 5_000
"""Evaluations of one run on a live page; further ones are refused and counted."""
MIN_COMPUTE = 1e-12
"""Nanoseconds of one device; less would only underflow."""
MAX_ROUNDING_DEVICE_HOURS = 1e-9
"""Device-hours by which the start-up may seem larger than the compute it is a part of."""
MIN_STANDARD_ERROR = 1e-6
"""A smaller one would need more than 10^11 completions: it counts as unknown."""
MAX_STEP = 2**53
"""Larger whole numbers are not steps: floats cannot distinguish them from their neighbors."""
MAX_RESTARTS_PER_ROW = 0.25
"""A file that seems to hold more restarts is not in the order of time."""
Steps = NDArray[np.int64]


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
    """Part of `compute` that starting engines took; None = not measured."""
    devices: float | None = None
    """Allocated when it was asked for."""
    graded_share: float | None = None
    """Share of the requested prompts that have a verdict; None = unknown, which counts as all."""

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
    """The evaluation with its impossible values set to None: they count as unknown."""
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
    """The standard error, or None if it cannot be one."""
    return value if value is not None and MIN_STANDARD_ERROR <= value <= 1 else None


def _share(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None


def _part_of(whole: float, value: float | None) -> float | None:
    """At most the whole, which rounding of sums may exceed a little."""
    return min(value, whole) if value is not None and 0 <= value <= whole + MAX_ROUNDING_DEVICE_HOURS else None


def _at_least_zero(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None


class SortedOut(NamedTuple):
    """The evaluations of a log that make its curve."""

    kept: tuple[CurvePoint, ...]
    num_lost: int
    """Evaluations of steps that are not in the surviving history."""
    num_incomplete: int
    """Surviving evaluations with too few prompts graded."""


@dataclass
class EvaluationLog:
    """Every evaluation of one run on one data set that was ever read, lost ones too."""

    evaluations: dict[tuple[str, int, int], CurvePoint] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    """Incarnation -> the step from which it continued, if the trainer reported it."""
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


@dataclass(frozen=True)
class RunEvaluations:
    """The evaluations of one run in a sheet.

    Attributes:
        points: the evaluations, in the order of the log.
        starts: incarnation -> the last step of the one before it that still counts.
        num_unknown: evaluations without a finite pass rate and compute.
        num_malformed: evaluations with an invalid value in one of the columns.
        complaint: a sentence on the first of these; empty if there is none.
    """

    points: list[CurvePoint]
    starts: dict[int, int]
    num_unknown: int
    num_malformed: int
    complaint: str


def evaluations_of(curve: CurveSheet, run: str, now: float = 0.0) -> RunEvaluations:
    """The evaluations of a sheet of one run. `now`: Unix seconds of evaluations if no column holds their time.

    Raises UserError: the rows are of several runs or measures, which as one curve would look like one run.
    """
    sheet = curve.sheet
    columns = curve.columns
    names = {
        "pass_rate": columns.pass_rate,
        "compute": columns.compute,
        "standard_error": columns.standard_error,
        "start_up": "start_up_device_hours",
        "trained_tokens": "trained_tokens",
        "samples": "samples",
        "truncation_ratio": columns.truncation_ratio,
        "devices": "devices",
        "at": columns.time,
    }
    numbers = {quantity: sheet.numbers(name) for quantity, name in names.items()}
    values: dict[str, NDArray[Any]] = {quantity: found.values for quantity, found in numbers.items()}
    is_evaluation = numbers["pass_rate"].given
    refuse_mixture(curve, is_evaluation)
    is_finite = np.isfinite(values["pass_rate"]) & np.isfinite(values["compute"])
    step, has_step = _steps(sheet.numbers(columns.step))
    is_of_an_incarnation = has_step & (is_finite | ~is_evaluation)
    values["incarnation"], starts = _incarnations(curve, step, is_of_an_incarnation, is_evaluation)
    # Without steps, evaluations are identified by their rows. The usual cost of a row is not known, so neither is the
    # cost of a start-up beyond it.
    values["step"] = np.where(has_step, step, np.where(values["compute"] > 0, np.arange(1, len(sheet) + 1), 0))
    values["start_up"] = np.where(numbers["start_up"].given | has_step, values["start_up"], 0.0)
    if columns.unit not in TIME_UNITS:
        # Steps and tokens do not count start-ups, and the number of devices does not change their number.
        values["start_up"] = np.zeros(len(sheet))
        values["devices"] = np.full(len(sheet), np.nan)
    values["pass_rate"] = values["pass_rate"] * curve.asked.scale
    values["standard_error"] = values["standard_error"] * curve.asked.scale
    values["graded_share"] = _graded_shares(sheet)
    if columns.time is None:
        values["at"] = np.full(len(sheet), now)
    named = {name: numbers[quantity] for quantity, name in names.items() if name is not None}
    is_malformed, complaint = malformed(curve, named, now)
    rows = np.flatnonzero(is_evaluation & is_finite & ~is_malformed)
    points = _points(run, {quantity: column[rows] for quantity, column in values.items()})
    num_malformed = int((is_evaluation & is_malformed).sum())
    num_unknown = int(is_evaluation.sum()) - num_malformed - len(points)
    return RunEvaluations(points, starts, num_unknown, num_malformed, complaint)


def _points(run: str, columns: Mapping[str, NDArray[Any]]) -> list[CurvePoint]:
    """One point for each row. Impossible values count as unknown."""
    found = {quantity: values.tolist() for quantity, values in columns.items()}
    # In the order of the fields of a point: by name this would take twice as long, and a file may hold a million.
    return list(
        map(
            CurvePoint,
            repeat(run),
            repeat(""),
            found["incarnation"],
            found["step"],
            found["pass_rate"],
            found["compute"],
            map(known_error, found["standard_error"]),
            map(_at_least_zero, found["trained_tokens"]),
            map(_at_least_zero, found["samples"]),
            found["at"],
            map(_share, found["truncation_ratio"]),
            map(_part_of, found["compute"], found["start_up"]),
            map(_at_least_zero, found["devices"]),
            map(_share, found["graded_share"]),
        )
    )


def _graded_shares(sheet: Sheet) -> Array:
    """(n,) share of the prompts asked that were graded, nan if it is unknown, as `EvaluationRecord` has it."""
    graded = sheet.numbers("num_prompts").values
    missing = sheet.numbers("missing_prompts").values
    asked = sheet.numbers("asked_prompts").values
    asked = np.where(np.isnan(asked), graded + missing, asked)
    is_known = (graded >= 0) & (graded <= asked) & (asked > 0)
    return np.asarray(np.where(is_known, graded, np.nan) / np.where(is_known, asked, 1.0))


def _steps(numbers: Numbers) -> tuple[Steps, Mask]:
    """(n,) each: the steps in a column, and which rows have one. From the first part of an epoch on no row has."""
    whole, is_whole = _whole(numbers)
    is_part = np.isfinite(numbers.values) & (np.floor(numbers.values) != numbers.values) & ~numbers.per_cent
    return whole, is_whole & ~np.logical_or.accumulate(is_part)


def _whole(numbers: Numbers) -> tuple[Steps, Mask]:
    """(n,) each: the whole numbers of a column, 0 in other rows, and which rows have one."""
    with np.errstate(invalid="ignore"):
        is_whole = (np.floor(numbers.values) == numbers.values) & (np.abs(numbers.values) < MAX_STEP)
    is_whole &= ~numbers.per_cent
    return np.where(is_whole, numbers.values, 0.0).astype(np.int64), is_whole


def _incarnations(curve: CurveSheet, step: Steps, has_step: Mask, is_evaluation: Mask) -> tuple[Steps, dict[int, int]]:
    """(n,) incarnation of each row, from a column or else from its steps; the last step that counts before each."""
    told, is_told = _whole(curve.sheet.numbers("incarnation"))
    number, first_steps = _restarts(curve, step, has_step & ~is_told, is_evaluation)
    number = np.where(is_told, told, number)
    rows = np.flatnonzero(is_told & has_step)
    if rows.size == 0 and len(first_steps) > MAX_RESTARTS_PER_ROW * int((~is_told).sum()):
        return number, dict.fromkeys(first_steps, NEVER_ENDED)
    if rows.size == 0:
        return number, {later: first - 1 for later, first in first_steps.items()}
    starts: dict[int, int] = {}
    for incarnation, first in zip(told[rows].tolist(), step[rows].tolist(), strict=True):
        starts[incarnation] = min(first - 1, starts.get(incarnation, first))
    # A column with the step from which an incarnation continued is exact, so it replaces the estimate.
    continued_from, is_known = _whole(curve.sheet.numbers("started_from"))
    rows = rows[is_known[rows]]
    starts.update(zip(told[rows].tolist(), continued_from[rows].tolist(), strict=True))
    return number, starts


def _restarts(curve: CurveSheet, step: Steps, has_step: Mask, is_evaluation: Mask) -> tuple[Steps, dict[int, int]]:
    """(n,) incarnation of each row, and the first step of each but the first.

    An incarnation begins when the step goes back, or when a step is evaluated again at another compute.
    """
    rows = np.flatnonzero(has_step)
    steps = step[rows]
    begins = np.zeros(rows.size, dtype=bool)
    begins[1:] = np.diff(steps) < 0
    evaluated = np.flatnonzero(is_evaluation[rows])
    again = np.flatnonzero(np.diff(steps[evaluated]) == 0)
    if again.size:
        computes = curve.sheet.texts(curve.columns.compute)
        for before, after in zip(evaluated[again].tolist(), evaluated[again + 1].tolist(), strict=True):
            begins[after] |= computes[rows[before]] != computes[rows[after]]
    number = np.ones(len(curve.sheet), dtype=np.int64)
    number[rows[begins]] += 1
    number = 1 + np.cumsum(number - 1)
    return number, dict(zip(number[rows[begins]].tolist(), steps[begins].tolist(), strict=True))


def column(evaluations: Sequence[CurvePoint], name: str) -> Array:
    """(n,) one quantity of every evaluation, nan if it is unknown."""
    values = [getattr(item, name) for item in evaluations]
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def known_truncation(ratios: Array) -> Array | None:
    """(n,) in order of compute. Unknown ratios (nan) are interpolated between their neighbors: they change no verdict.

    None if none is known.
    """
    known = np.flatnonzero(~np.isnan(ratios))
    if known.size == 0:
        return None
    return np.asarray(np.interp(np.arange(ratios.size), known, ratios[known]))
