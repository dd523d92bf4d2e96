"""Evaluations of runs: one point, many as columns, their bounds, the log that sorts them out, one
look at a source.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, overload

from numpy.typing import NDArray

from rollcast.config.bounds import MOST_COMPUTE, MOST_STEPS
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.runfolder.survival import is_complete, surviving
from rollcast.scaling.decisions.advice_answer import EarlierAdvice
from rollcast.scaling.law.curve import DEVICE_HOURS

MAX_EVALUATIONS = 5_000
"""Evaluations of one run on a live page; further ones are refused and counted."""
MIN_COMPUTE = 1e-12
"""Nanoseconds of one device; less would only underflow."""
MAX_ROUNDING_DEVICE_HOURS = 1e-9
"""Device-hours by which the start-up may seem larger than the compute it is a part of."""
MIN_STANDARD_ERROR = 1e-6
"""A smaller one would need more than 10^11 completions: it counts as unknown."""
LEAST_AND_MOST = {
    "standard_error": (MIN_STANDARD_ERROR, 1.0),
    "trained_tokens": (0.0, sys.float_info.max),
    "samples": (0.0, sys.float_info.max),
    "truncation_ratio": (0.0, 1.0),
    "devices": (0.0, sys.float_info.max),
    "graded_share": (0.0, 1.0),
}
"""Quantities that count as unknown if they are out of these bounds."""


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


def validate_evaluation(evaluation: CurvePoint) -> CurvePoint:
    """The evaluation as `clear_impossible_values` has it, within the bounds of a live source.

    Raises:
        ValueError: a value that the curve needs is out of bounds.
    """
    if not (
        # A slash in a run's name would split the path of its address.
        evaluation.run
        and len(evaluation.run) <= 200
        and evaluation.run.isprintable()
        and "/" not in evaluation.run
    ):
        raise ValueError(
            f"run {evaluation.run[:50]!r}: give 1 to 200 printable characters without a slash"
        )
    if not (len(evaluation.dataset) <= 200 and evaluation.dataset.isprintable()):
        raise ValueError(
            f"dataset {evaluation.dataset[:50]!r}: give at most 200 printable characters"
        )
    # Not written as `< 0 or > 1`, because both are false for nan.
    if not 0 <= evaluation.pass_rate <= 1:
        raise ValueError(f"pass rate {evaluation.pass_rate:g} lies outside [0, 1]")
    if not (evaluation.compute == 0 or MIN_COMPUTE <= evaluation.compute <= MOST_COMPUTE):
        raise ValueError(
            f"compute {evaluation.compute:g} is neither 0 nor in [{MIN_COMPUTE:g}, "
            f"{MOST_COMPUTE:g}] device-hours"
        )
    if not (0 <= evaluation.step <= MOST_STEPS and 0 <= evaluation.incarnation <= MOST_STEPS):
        raise ValueError(f"step {evaluation.incarnation}.{evaluation.step} is out of bounds")
    return clear_impossible_values(evaluation)


def clear_impossible_values(evaluation: CurvePoint) -> CurvePoint:
    """The evaluation with its impossible values set to None: they count as unknown."""
    unknown: dict[str, float | None] = {}
    for name, (minimum, maximum) in LEAST_AND_MOST.items():
        value = getattr(evaluation, name)
        if value is not None and not minimum <= value <= maximum:
            unknown[name] = None
    start_up = evaluation.start_up
    if start_up is not None:
        is_possible = 0 <= start_up <= evaluation.compute + MAX_ROUNDING_DEVICE_HOURS
        unknown["start_up"] = min(start_up, evaluation.compute) if is_possible else None
    return replace(evaluation, **unknown)  # type: ignore[arg-type]


def known_error(value: float | None) -> float | None:
    """The standard error, or None if it cannot be one."""
    return value if value is not None and MIN_STANDARD_ERROR <= value <= 1 else None


@dataclass(frozen=True, eq=False)
class Evaluations(Sequence[CurvePoint]):
    """The evaluations of one run of a file, which may hold a million, as columns.

    Attributes:
        columns: (n,) each quantity of a `CurvePoint` by name, nan if it is unknown; the data set
            has no name.
    """

    run: str
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["step"])

    def __iter__(self) -> Iterator[CurvePoint]:
        names = [field.name for field in fields(CurvePoint) if field.name in self.columns]
        values = [self.columns[name].tolist() for name in names]
        for row in zip(*values, strict=True):
            # Only nan differs from itself; in a column it means unknown.
            yield CurvePoint(self.run, "", *(None if value != value else value for value in row))  # type: ignore[arg-type]

    @overload
    def __getitem__(self, index: int) -> CurvePoint: ...

    @overload
    def __getitem__(self, index: slice) -> "Evaluations": ...

    def __getitem__(self, index: int | slice) -> "CurvePoint | Evaluations":
        if isinstance(index, slice):
            return Evaluations(
                self.run, {name: values[index] for name, values in self.columns.items()}
            )
        row = range(len(self))[index]
        [point] = self[row : row + 1]
        return point


@dataclass(frozen=True)
class Origin:
    """What a source was read as. Every command prints it, in one line or in its JSON.

    Attributes:
        format: the name of the source's format.
        compute: the column or quantity that the curve is drawn over.
        pass_rate: the column of the pass rates.
        unit: in which compute is counted.
        scale, offset: (value + offset) x scale is the pass rate.
    """

    format: str
    compute: str
    pass_rate: str
    unit: str
    scale: float = 1.0
    offset: float = 0.0

    @property
    def is_mapped(self) -> bool:
        """Whether the source's values are in a unit of their own."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def to_own_unit(self, pass_rate: float) -> float:
        """The value that the source has for this pass rate."""
        return pass_rate / self.scale - self.offset


OWN = Origin("run of Rollcast", "compute_device_hours", "pass_rate", DEVICE_HOURS)


@dataclass(frozen=True)
class RunHistory:
    """The surviving evaluations of one run, read once and whole.

    Attributes:
        name: the run.
        evaluations: of the surviving history, in order of compute.
        num_dropped: readings without a finite pass rate and compute.
        origin: as what the source was read, and in which unit.
        num_incomplete: evaluations left out because too few of their prompts were graded.
        budget_steps: the step at which the source says that the run will end; None if it does not,
            or has reached it.
        budget_device_hours: the same in device-hours.
        end_reason: why the run ended before its budget; None = it did not.
        last_advice: on the run, before its newest evaluation or after it.
        kept_checkpoints: its checkpoints, if the source knows them.
    """

    name: str
    evaluations: Sequence[CurvePoint]
    num_dropped: int = 0
    origin: Origin = OWN
    num_incomplete: int = 0
    budget_steps: float | None = None
    budget_device_hours: float | None = None
    end_reason: str | None = None
    last_advice: EarlierAdvice | None = None
    kept_checkpoints: KeptCheckpoints | None = None


class SortedOut(NamedTuple):
    """The evaluations of a log that make its curve."""

    curve_points: tuple[CurvePoint, ...]
    """The complete ones of the surviving history, one for each step, in order of compute."""
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
        # Before the limit: a full log must not refuse the evaluations that it already holds.
        if evaluation.key in self.evaluations:
            return False
        if len(self.evaluations) >= self.limit:
            raise OverflowError(f"run {evaluation.run!r} has more than {self.limit} evaluations")
        self.evaluations[evaluation.key] = evaluation
        return True

    def sorted_out(self) -> SortedOut:
        """The surviving ones, and how many were left out for which reason."""
        surviving_points = surviving(self.evaluations.values(), self.starts)
        # After the survivors, because an incomplete evaluation also shows which steps were made
        # again.
        complete_points = [item for item in surviving_points if is_complete(item.graded_share)]
        return SortedOut(
            curve_points=tuple(sorted(complete_points, key=lambda item: (item.compute, item.step))),
            num_lost=len(self.evaluations) - len(surviving_points),
            num_incomplete=len(surviving_points) - len(complete_points),
        )


@dataclass
class TrainerStatus:
    """What a run's trainer reports about itself; None = not reported."""

    step: float | None = None
    incarnation: float | None = None
    max_staleness: float | None = None
    longest_group_ratio: float | None = None
    truncation_ratio: float | None = None
    interrupted_ratio: float | None = None
    reward_mean: float | None = None
    budget_steps: float | None = None
    budget_device_hours: float | None = None
    staleness: dict[float, float] = field(default_factory=dict)
    """Bound (steps) -> tokens at most that old, cumulative as a histogram's buckets are."""
    spent: dict[str, float] = field(default_factory=dict, compare=False)
    """Role -> device-hours that the run ever spent. They rise all the time, which is no news."""
    group_signals: dict[str, float] = field(default_factory=dict)
    """Training groups received since the trainer's process began, by their signal."""


@dataclass
class Reading:
    """What one look at a source found: evaluations, and by run status, origin, and where each
    incarnation continued.
    """

    evaluations: list[CurvePoint] = field(default_factory=list)
    status: dict[str, TrainerStatus] = field(default_factory=dict)
    starts: dict[str, dict[int, int]] = field(default_factory=dict)
    """Run -> incarnation -> the step from which it continued."""
    origins: dict[str, Origin] = field(default_factory=dict)
    replaced_runs: set[str] = field(default_factory=set)
    """Runs of which this reading holds everything, because their file was read whole or was
    replaced. If an earlier evaluation is missing here, it no longer exists."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of readings that were left out."""
    away: list[str] = field(default_factory=list)
    """One sentence on each part of the source that cannot be read while others can."""
