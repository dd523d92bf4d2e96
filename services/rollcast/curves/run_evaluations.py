"""The evaluations of one run in a log whose columns are known, and the history that survives."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell, format_count
from rollcast.curves.columns.choices import some
from rollcast.curves.columns.curve_sheet import CurveSheet
from rollcast.curves.columns.named_column import NamedColumn
from rollcast.curves.columns.restarts import MAX_RESTARTS_PER_ROW, Rows, going_back
from rollcast.curves.columns.units import TIME_UNITS
from rollcast.curves.evaluations import (
    LEAST_AND_MOST,
    MAX_ROUNDING_DEVICE_HOURS,
    Evaluations,
    Origin,
    RunHistory,
)
from rollcast.curves.sheet import Mask, Numbers
from rollcast.runfolder.survival import LEAST_GRADED_SHARE, NEVER_ENDED, surviving
from rollcast.scaling.law.curve import Array

MADE_AGAIN = "of steps that were made again after a restart"
"""Why evaluations are left out."""
QUANTITIES = (
    "pass_rate", "compute", "standard_error", "start_up", "trained_tokens", "samples",
    "truncation_ratio", "devices", "time",
)  # fmt: skip
"""Quantities of an evaluation that columns hold."""


@dataclass(frozen=True)
class RunEvaluations:
    """The evaluations of one run in a sheet.

    Attributes:
        points: the evaluations, in the order of the log.
        starts: incarnation -> the last step of the one before it that still counts.
        num_unknown: evaluations without a finite pass rate and compute.
        num_malformed: evaluations with an invalid value in one of the columns.
        complaint: a sentence on the first of these; empty without any.
    """

    points: Evaluations
    starts: dict[int, int]
    num_unknown: int
    num_malformed: int
    complaint: str


def read_run_evaluations(curve: CurveSheet, run: str, now_seconds: float = 0.0) -> RunEvaluations:
    """The evaluations of a sheet of one run. `now_seconds`: Unix seconds of evaluations if no
    column holds their time.

    Raises UserError: the rows are of several runs or measures, which as one curve would look like
    one run.
    """
    numbers = {quantity: curve[quantity] for quantity in QUANTITIES}
    num_rows = curve.sheet.num_rows
    values: dict[str, NDArray[Any]] = {
        quantity: column_numbers.values for quantity, column_numbers in numbers.items()
    }
    values["at"] = values.pop("time")
    is_evaluation = numbers["pass_rate"].is_given
    _refuse_mixture(curve)
    is_finite = np.isfinite(values["pass_rate"]) & np.isfinite(values["compute"])
    steps = curve["step"]
    is_part = np.isfinite(steps.values) & (np.floor(steps.values) != steps.values) & ~steps.per_cent
    step, has_step = steps.whole
    # From the first part of an epoch on, no row has a step.
    has_step &= ~np.logical_or.accumulate(is_part)
    values["incarnation"], starts = _incarnations(
        curve, step, has_step & (is_finite | ~is_evaluation), is_evaluation
    )
    # Without steps, evaluations are identified by their rows. The usual cost of a row is not known,
    # so neither is the cost of a start-up beyond it.
    values["step"] = np.where(
        has_step, step, np.where(values["compute"] > 0, np.arange(1, num_rows + 1), 0)
    )
    values["start_up"] = np.where(numbers["start_up"].is_given | has_step, values["start_up"], 0.0)
    if curve.columns.unit not in TIME_UNITS:
        # Steps and tokens do not count start-ups, and the number of devices does not change their
        # number.
        values["start_up"] = np.broadcast_to(0.0, num_rows)
        values["devices"] = np.broadcast_to(np.nan, num_rows)
    values["pass_rate"] = (
        values["pass_rate"] + curve.column_options.offset
    ) * curve.column_options.scale
    values["standard_error"] = values["standard_error"] * curve.column_options.scale
    values["graded_share"] = _graded_share(curve)
    if curve.columns.time is None:
        values["at"] = np.broadcast_to(now_seconds, num_rows)
    is_malformed, complaint = _find_malformed(curve, numbers, now_seconds)
    is_kept = is_evaluation & is_finite & ~is_malformed
    # Most logs need no selection, which would copy all columns of a file that may hold a million
    # rows.
    if not is_kept.all():
        values = {quantity: column[is_kept] for quantity, column in values.items()}
    points = Evaluations(run, _with_known_values(values))
    num_malformed = int((is_evaluation & is_malformed).sum())
    num_unknown = int(is_evaluation.sum()) - num_malformed - len(points)
    return RunEvaluations(points, starts, num_unknown, num_malformed, complaint)


def _graded_share(curve: CurveSheet) -> Array:
    """(n,) the share of the prompts asked that were graded; nan if it is unknown."""
    graded = curve["num_prompts"].values
    num_asked = curve["asked_prompts"].values
    # As `EvaluationRecord` has it: records without the number of prompts asked count the missing
    # ones instead.
    num_asked = np.where(np.isnan(num_asked), graded + curve["missing_prompts"].values, num_asked)
    shares: Array = np.full(graded.size, np.nan)
    np.divide(graded, num_asked, out=shares, where=num_asked > 0)
    return shares


def _with_known_values(columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """What `known` does, for (n,) values of each quantity; unknown ones are nan."""
    known_columns = dict(columns)
    with np.errstate(invalid="ignore"):
        for name, (minimum, maximum) in LEAST_AND_MOST.items():
            known_columns[name] = np.where(
                (known_columns[name] >= minimum) & (known_columns[name] <= maximum),
                known_columns[name],
                np.nan,
            )
        start_up = known_columns["start_up"]
        compute = known_columns["compute"]
        is_possible = (start_up >= 0) & (start_up <= compute + MAX_ROUNDING_DEVICE_HOURS)
        known_columns["start_up"] = np.where(is_possible, np.minimum(start_up, compute), np.nan)
    return known_columns


def _find_malformed(
    curve: CurveSheet, numbers: dict[str, Numbers], now_seconds: float
) -> tuple[Mask, str]:
    """(n,) evaluations with an invalid value in one of the columns, and a sentence on the first of
    them.
    """
    columns = curve.columns
    is_evaluation = numbers["pass_rate"].is_given
    is_malformed = np.zeros(curve.sheet.num_rows, dtype=bool)
    first = curve.sheet.num_rows
    odd_name: str | None = None
    for quantity in QUANTITIES:
        is_odd = numbers[quantity].odd & is_evaluation
        is_malformed |= is_odd
        if np.any(is_odd) and (row := int(np.argmax(is_odd))) < first:
            first = row
            odd_name = columns.column_name(quantity)
    complaint = ""
    if odd_name is not None:
        complaint = NamedColumn(odd_name, curve.evaluations.sheet).complaint
    is_negative = is_evaluation & (numbers["compute"].values < 0)
    if np.any(is_negative) and not complaint:
        lowest_compute = float(np.min(numbers["compute"].values[is_negative]))
        complaint = (
            f"{columns.compute} is {lowest_compute:g} in a row; compute counts from the run's "
            "start, so leave out what came before it"
        )
    is_malformed |= is_negative
    if columns.time is not None:
        time = numbers["time"].values
        # How far the time of an evaluation may be ahead of our clock: a day, as in another time
        # zone
        is_other_time = is_evaluation & ~((time > 0) & (time <= now_seconds + 86_400.0))
        if np.any(is_other_time) and not complaint:
            complaint = f"{columns.time} is {time[is_other_time][0]:g}, needs Unix seconds"
        is_malformed |= is_other_time
    return is_malformed, complaint


def _refuse_mixture(curve: CurveSheet) -> None:
    """Raises UserError if the evaluations are of several runs, or a text differs between some of
    equal compute.
    """
    evaluations = curve.evaluations
    runs = list(dict.fromkeys(evaluations.run_names))
    where = curve.column_options.option("where")
    if len(runs) > 1:
        raise UserError(f"holds {len(runs)} runs; choose one of {some(runs)} with {where} run=NAME")
    if evaluations.clashing_labels:
        clash = evaluations.clashing_labels[0]
        raise UserError(
            f"{clash.name} differs between rows of equal {curve.columns.compute}; "
            f"choose one of {some(clash.kinds)} with {where} {clash.name}=VALUE"
        )


def _incarnations(
    curve: CurveSheet, step: Rows, has_step: Mask, is_evaluation: Mask
) -> tuple[Rows, dict[int, int]]:
    """(n,) incarnation of each row, from a column or else from its steps; the last step that counts
    before each.

    By the steps, an incarnation begins when the log goes back, or when a step is evaluated again at
    another compute.
    """
    recorded_incarnations, is_told = curve["incarnation"].whole
    rows = np.flatnonzero(has_step & ~is_told)
    steps = step[rows]
    is_start = np.isin(
        rows, going_back(curve.sheet, np.where(has_step & ~is_told, step, np.nan), is_evaluation)
    )
    evaluated = np.flatnonzero(is_evaluation[rows])
    repeated = np.flatnonzero(np.diff(steps[evaluated]) == 0)
    # A step that is there twice at one compute is one reading, logged twice, and no restart.
    if repeated.size:
        computes = curve.compute_texts
        for earlier_row, later_row in zip(
            evaluated[repeated].tolist(), evaluated[repeated + 1].tolist(), strict=True
        ):
            is_start[later_row] |= computes[rows[earlier_row]] != computes[rows[later_row]]
    start_flags = np.zeros(curve.sheet.num_rows, dtype=np.int64)
    start_flags[rows[is_start]] = 1
    number = 1 + np.cumsum(start_flags)
    first_steps = dict(zip(number[rows[is_start]].tolist(), steps[is_start].tolist(), strict=True))
    number = np.where(is_told, recorded_incarnations, number)
    rows = np.flatnonzero(is_told & has_step)
    # In a file that is not in order of time no incarnation cuts off another one.
    if rows.size == 0 and len(first_steps) > MAX_RESTARTS_PER_ROW * int((~is_told).sum()):
        return number, dict.fromkeys(first_steps, NEVER_ENDED)
    if rows.size == 0:
        # Without a record, a run is taken to continue from just before the first step that is there
        # again.
        return number, {
            incarnation: first_step - 1 for incarnation, first_step in first_steps.items()
        }
    starts: dict[int, int] = {}
    for incarnation, first_step in zip(
        recorded_incarnations[rows].tolist(), step[rows].tolist(), strict=True
    ):
        starts[incarnation] = min(first_step - 1, starts.get(incarnation, first_step))
    # A column with the step from which an incarnation continued is exact, so it replaces the
    # estimate.
    continued_from, is_known = curve["started_from"].whole
    rows = rows[is_known[rows]]
    starts.update(
        zip(recorded_incarnations[rows].tolist(), continued_from[rows].tolist(), strict=True)
    )
    return number, starts


class _EvaluationRow(NamedTuple):
    """The row of an evaluation, and what makes it one reading of its run."""

    incarnation: int
    step: int
    row: int


def make_history(
    run_evaluations: RunEvaluations, name: str, origin: Origin, tell: Tell
) -> RunHistory:
    """The surviving evaluations of a log, and sentences on the others.

    Raises ValueError: one is malformed.
    """
    if run_evaluations.complaint:
        raise ValueError(run_evaluations.complaint)
    columns = run_evaluations.points.columns
    rows = np.arange(len(columns["step"]))
    # If steps and incarnations rise, as in most logs, no evaluation is repeated or lost.
    is_in_order = np.all(np.diff(columns["step"]) > 0) and np.all(
        np.diff(columns["incarnation"]) >= 0
    )
    if run_evaluations.starts or not is_in_order:
        first: dict[tuple[int, int], _EvaluationRow] = {}
        for row, key in enumerate(
            zip(columns["incarnation"].tolist(), columns["step"].tolist(), strict=True)
        ):
            first.setdefault(key, _EvaluationRow(*key, row))
        if num_repeated := rows.size - len(first):
            tell(f"{format_count(num_repeated, 'evaluation')} left out, second readings of a step")
        surviving_readings = surviving(first.values(), run_evaluations.starts)
        if num_lost := len(first) - len(surviving_readings):
            tell(f"{format_count(num_lost, 'evaluation')} left out, {MADE_AGAIN}")
        rows = np.array([reading.row for reading in surviving_readings], dtype=np.intp)
    is_incomplete = columns["graded_share"][rows] < LEAST_GRADED_SHARE
    rows = rows[~is_incomplete]
    rows = rows[np.lexsort((columns["step"][rows], columns["compute"][rows]))]
    evaluations = run_evaluations.points
    if not np.array_equal(rows, np.arange(len(evaluations))):
        evaluations = Evaluations(
            evaluations.run, {quantity: values[rows] for quantity, values in columns.items()}
        )
    return RunHistory(
        name, evaluations, run_evaluations.num_unknown, origin, int(is_incomplete.sum())
    )
