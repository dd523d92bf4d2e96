"""The history of a run from a sheet: the requested rows, the columns that hold the curve, and its
evaluations.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell, amount, format_count
from rollcast.curves.columns import TIME_UNITS, Columns, CurveColumns, some
from rollcast.curves.curve_columns import curve_columns
from rollcast.curves.evaluations import (
    LEAST_AND_MOST,
    MAX_ROUNDING_DEVICE_HOURS,
    Evaluations,
    Origin,
    RunHistory,
)
from rollcast.curves.labels import clashing_label
from rollcast.curves.pass_rate_range import per_cent_by_name
from rollcast.curves.ratios import with_ratios
from rollcast.curves.restarts import incarnations, stray_rows, whole_numbers
from rollcast.curves.sheet import RUN, Mask, Numbers, Sheet, not_a_number
from rollcast.curves.times import COUNTS, in_one_unit
from rollcast.runfolder.survival import LEAST_GRADED_SHARE, surviving
from rollcast.scaling.law.curve import Array
from rollcast.telemetry.evaluation_metrics import is_own_curve

MADE_AGAIN = "of steps that were made again after a restart"
"""Why evaluations are left out."""


@dataclass(frozen=True)
class CurveSheet:
    """The requested part of a sheet.

    Attributes:
        sheet: numbers in its column of compute.
        columns: those that hold the curve.
        column_options: what the user specified about the columns.
        wanted_run: the requested run if no column names the runs.
    """

    sheet: Sheet
    columns: CurveColumns
    column_options: Columns
    wanted_run: str | None = None

    @property
    def origin(self) -> Origin:
        """What the log was read as."""
        columns = self.columns
        mapping = (self.column_options.scale, self.column_options.offset)
        return Origin(self.sheet.format, columns.compute, columns.pass_rate, columns.unit, *mapping)

    def runs(self) -> list[str]:
        """The runs that have an evaluation, in the order of the log; one without a name if no
        column names them.
        """
        names = np.array(self.sheet.texts(RUN), dtype=object)[
            self.sheet.numbers(self.columns.pass_rate).is_given
        ]
        return list(dict.fromkeys(names.tolist())) or [""]

    def select_run(self, run: str) -> "CurveSheet":
        """The rows of one run."""
        return replace(self, sheet=_rows_with(self.sheet, RUN, run))


def curve_sheet(sheet: Sheet, column_options: Columns, run: str | None, tell: Tell) -> CurveSheet:
    """The requested rows, and the columns that hold their curve. `run`: None = all runs.

    Raises UserError: no row is left, or a column is missing or not clear.
    """
    sheet = with_ratios(sheet)
    wanted_run: str | None = None
    names_runs = sheet.column(RUN) is not None
    for condition in [*column_options.where, *([] if run is None else [f"{RUN}={run}"])]:
        name, equals, value = condition.partition("=")
        if not equals:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
        # No column names the runs, so the places at which the log begins again number them later.
        if name.casefold() == RUN and not names_runs:
            wanted_run = value
            continue
        sheet = _rows_with(sheet, name, value)
    # A log of Rollcast also holds parts of the prompts and downstream data sets, each a curve of
    # its own.
    is_chosen = any(condition.startswith("dataset=") for condition in column_options.where)
    if not is_chosen and sheet.column("dataset") is not None:
        sheet = sheet.only(
            np.array([is_own_curve(dataset) for dataset in sheet.texts("dataset")], dtype=bool)
        )
    if sheet.num_rows == 0:
        is_narrowed = bool(column_options.where) or run is not None
        if not is_narrowed:
            raise UserError("holds no evaluation yet")
        raise UserError(
            f"no row is left; check {column_options.option('where')}, --run and the file"
        )
    sheet, columns = curve_columns(sheet, column_options, tell)
    rates = sheet.numbers(columns.pass_rate)
    if np.any(rates.per_cent):
        tell(f"per cent signs in {columns.pass_rate}, read as parts of 1")
    elif small := per_cent_by_name(rates.values, columns.pass_rate, column_options):
        tell(small)
    compute = sheet.numbers(columns.compute)
    # Plain numbers of steps or tokens need no conversion.
    is_plain = (
        columns.unit in COUNTS
        and column_options.devices is None
        and not np.any(compute.odd | compute.per_cent)
    )
    if column_options.unit is None and not is_plain:
        sheet, unit = in_one_unit(
            sheet, columns.compute, columns.unit, column_options.devices, tell
        )
        columns = replace(columns, unit=unit)
    return _without_strays(CurveSheet(sheet, columns, column_options, wanted_run), tell)


def _without_strays(curve: CurveSheet, tell: Tell) -> CurveSheet:
    """Without rows that fall back for a moment, if the rows are of one curve: a line that a model
    quotes, say.
    """
    sheet = curve.sheet
    counter = curve.columns.step or curve.columns.compute
    counts = sheet.numbers(counter).values
    is_evaluation = sheet.numbers(curve.columns.pass_rate).is_given
    is_told = sheet.column(RUN) is not None or sheet.column("incarnation") is not None
    strays = (
        stray_rows(sheet, counts, is_evaluation) if not is_told else np.empty(0, dtype=np.int64)
    )
    if (
        not strays.size
        or clashing_label(sheet.only(is_evaluation), curve.columns.compute) is not None
    ):
        return curve
    why = (
        f"whose {counter} falls back for a moment; the first is at {counter} "
        f"{amount(float(counts[strays[0]]))}"
    )
    tell(f"{format_count(strays.size, 'row')} left out, {why}")
    return replace(curve, sheet=sheet.only(~np.isin(np.arange(sheet.num_rows), strays)))


def _rows_with(sheet: Sheet, name: str, wanted_text: str) -> Sheet:
    """The rows whose field in a column is the wanted text."""
    return sheet.only(np.array([text == wanted_text for text in sheet.texts(name)], dtype=bool))


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
    sheet = curve.sheet
    columns = curve.columns
    names = _column_names(columns)
    numbers = {quantity: sheet.numbers(name) for quantity, name in names.items()}
    values: dict[str, NDArray[Any]] = {
        quantity: column_numbers.values for quantity, column_numbers in numbers.items()
    }
    is_evaluation = numbers["pass_rate"].is_given
    _refuse_mixture(curve, is_evaluation)
    is_finite = np.isfinite(values["pass_rate"]) & np.isfinite(values["compute"])
    steps = sheet.numbers(columns.step)
    is_part = np.isfinite(steps.values) & (np.floor(steps.values) != steps.values) & ~steps.per_cent
    step, has_step = whole_numbers(steps)
    # From the first part of an epoch on, no row has a step.
    has_step &= ~np.logical_or.accumulate(is_part)
    is_of_an_incarnation = has_step & (is_finite | ~is_evaluation)
    values["incarnation"], starts = incarnations(
        sheet, columns.compute, step, is_of_an_incarnation, is_evaluation
    )
    # Without steps, evaluations are identified by their rows. The usual cost of a row is not known,
    # so neither is the cost of a start-up beyond it.
    values["step"] = np.where(
        has_step, step, np.where(values["compute"] > 0, np.arange(1, sheet.num_rows + 1), 0)
    )
    values["start_up"] = np.where(numbers["start_up"].is_given | has_step, values["start_up"], 0.0)
    if columns.unit not in TIME_UNITS:
        # Steps and tokens do not count start-ups, and the number of devices does not change their
        # number.
        values["start_up"] = np.broadcast_to(0.0, sheet.num_rows)
        values["devices"] = np.broadcast_to(np.nan, sheet.num_rows)
    values["pass_rate"] = (
        values["pass_rate"] + curve.column_options.offset
    ) * curve.column_options.scale
    values["standard_error"] = values["standard_error"] * curve.column_options.scale
    values["graded_share"] = _graded_share(sheet)
    if columns.time is None:
        values["at"] = np.broadcast_to(now_seconds, sheet.num_rows)
    named = {name: numbers[quantity] for quantity, name in names.items() if name is not None}
    is_malformed, complaint = _find_malformed(curve, named, now_seconds)
    is_kept = is_evaluation & is_finite & ~is_malformed
    # Most logs need no selection, which would copy all columns of a file that may hold a million
    # rows.
    if not is_kept.all():
        values = {quantity: column[is_kept] for quantity, column in values.items()}
    points = Evaluations(run, _with_known_values(values))
    num_malformed = int((is_evaluation & is_malformed).sum())
    num_unknown = int(is_evaluation.sum()) - num_malformed - len(points)
    return RunEvaluations(points, starts, num_unknown, num_malformed, complaint)


def _column_names(columns: CurveColumns) -> dict[str, str | None]:
    """Quantity of an evaluation -> the column that holds it."""
    return {
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


def _graded_share(sheet: Sheet) -> Array:
    """(n,) the share of the prompts asked that were graded; nan if it is unknown."""
    graded = sheet.numbers("num_prompts").values
    num_asked = sheet.numbers("asked_prompts").values
    # As `EvaluationRecord` has it: records without the number of prompts asked count the missing
    # ones instead.
    num_asked = np.where(
        np.isnan(num_asked), graded + sheet.numbers("missing_prompts").values, num_asked
    )
    shares: Array = np.full(sheet.num_rows, np.nan)
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
    curve: CurveSheet, named: dict[str, Numbers], now_seconds: float
) -> tuple[Mask, str]:
    """(n,) evaluations with an invalid value in one of the columns, and a sentence on the first of
    them.
    """
    columns = curve.columns
    is_evaluation = named[columns.pass_rate].is_given
    is_malformed = np.zeros(curve.sheet.num_rows, dtype=bool)
    first = curve.sheet.num_rows
    complaint = ""
    for name, numbers in named.items():
        is_odd = numbers.odd & is_evaluation
        is_malformed |= is_odd
        if np.any(is_odd) and (row := int(np.argmax(is_odd))) < first:
            first = row
            complaint = not_a_number(curve.sheet.texts(name)[row], name)
    is_negative = is_evaluation & (named[columns.compute].values < 0)
    if np.any(is_negative) and not complaint:
        lowest_compute = float(np.min(named[columns.compute].values[is_negative]))
        complaint = (
            f"{columns.compute} is {lowest_compute:g} in a row; compute counts from the run's "
            "start, so leave out what came before it"
        )
    is_malformed |= is_negative
    if columns.time is not None:
        time = named[columns.time].values
        # How far the time of an evaluation may be ahead of our clock: a day, as in another time
        # zone
        is_other_time = is_evaluation & ~((time > 0) & (time <= now_seconds + 86_400.0))
        if np.any(is_other_time) and not complaint:
            complaint = f"{columns.time} is {time[is_other_time][0]:g}, needs Unix seconds"
        is_malformed |= is_other_time
    return is_malformed, complaint


def _refuse_mixture(curve: CurveSheet, is_evaluation: Mask) -> None:
    """Raises UserError if the evaluations are of several runs, or a text differs between some of
    equal compute.
    """
    sheet = curve.sheet.only(is_evaluation)
    runs = list(dict.fromkeys(sheet.texts(RUN)))
    if len(runs) > 1:
        choice = f"{curve.column_options.option('where')} run=NAME"
        raise UserError(f"holds {len(runs)} runs; choose one of {some(runs)} with {choice}")
    if clash := clashing_label(sheet, curve.columns.compute):
        choice = f"{curve.column_options.option('where')} {clash.name}=VALUE"
        raise UserError(
            f"{clash.name} differs between rows of equal {curve.columns.compute}; "
            f"choose one of {some(clash.kinds)} with {choice}"
        )


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
