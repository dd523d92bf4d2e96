"""A file of somebody's runs that is read whole: the history of every run in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np

from rollcast.config.curve_columns import (
    COMPUTE_NAMES,
    PASS_RATE_NAMES,
    STANDARD_ERROR_NAMES,
    TRUNCATION_NAMES,
    find_column,
)
from rollcast.config.errors import UserError
from rollcast.curves.column_evaluations import (
    CurveColumns,
    complaint_of,
    complete_of,
    evaluations_of,
    num_distinct,
    surviving_of,
)
from rollcast.curves.compute_axis import in_one_unit
from rollcast.curves.curve_row import some, text_of
from rollcast.curves.formats.found import Found
from rollcast.curves.formats.recognise import read_source
from rollcast.curves.left_out import Tell, left_out
from rollcast.curves.measures import STEP_ORDER, compute_columns, pass_rate_columns
from rollcast.curves.origin import Origin
from rollcast.curves.run_history import RunHistory
from rollcast.curves.sheet import Mask, Sheet
from rollcast.curves.units import STEPS, TIME_UNITS
from rollcast.telemetry.names import is_own_curve


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None = recognised by their names. Of a Prometheus: expressions of one series each."""

    compute: str | None = None
    pass_rate: str | None = None
    standard_error: str | None = None
    truncation_ratio: str | None = None
    where: tuple[str, ...] = ()
    """Conditions COLUMN=VALUE that a row must meet."""
    scale: float = 1.0
    """Times the pass rates and their standard errors."""
    seconds: str | None = None
    """Instead of `compute`: the column of the time that passed, which `devices` turn into device-hours."""
    devices: float | None = None


@dataclass(frozen=True)
class Table:
    """A source's rows as far as they were asked for, and the columns that hold the curve."""

    source: str
    sheet: Sheet
    columns: Columns
    """All found."""
    step: str | None
    """The column of the optimizer step."""
    origin: Origin

    def runs(self) -> list[str]:
        """Those that have a pass rate, in the order of the file; one without a name where there is no such column."""
        if not self.sheet.has("run"):
            return [""]
        is_reading = self.sheet.numbers(self.columns.pass_rate).given
        return list(dict.fromkeys(compress(self.sheet.texts("run"), is_reading))) or [""]

    def of_run(self, run: str) -> Table:
        """The rows of one of them."""
        return replace(self, sheet=self.sheet.only(_are(self.sheet.texts("run"), run)))

    def history(self, name: str, tell: Tell) -> RunHistory:
        """Of one run's rows. Raises UserError where they are of several measures, or a column holds no number."""
        assert self.columns.compute is not None
        assert self.columns.pass_rate is not None
        columns = CurveColumns(
            compute=self.columns.compute,
            pass_rate=self.columns.pass_rate,
            standard_error=self.columns.standard_error,
            truncation_ratio=self.columns.truncation_ratio,
            step=self.step,
            scale=self.columns.scale,
        )
        try:
            evaluations, starts = evaluations_of(self.sheet, columns, name)
        except UserError as error:
            raise UserError(f"{self.source}: {error}") from None
        if (mixed := complaint_of(self.sheet, columns, "--where")) is not None:
            raise UserError(f"{self.source}: {mixed}")
        finite = evaluations.at(np.isfinite(evaluations.compute) & np.isfinite(evaluations.pass_rate)).known()
        if len(finite) and (least := float(finite.compute.min())) < 0:
            raise UserError(
                f"{self.source}: {self.columns.compute} is {least:g} in a row; compute counts from the run's start, "
                "so leave out what came before it"
            )
        if self.origin.unit not in TIME_UNITS:
            # Nothing starts up in steps or tokens, and devices do not change what they cost.
            zero = np.zeros(len(finite))
            finite = replace(finite, start_up=zero, devices=np.full(len(finite), np.nan))
        kept = surviving_of(finite, starts)
        twice = len(finite) - num_distinct(finite)
        if twice:
            tell(left_out(self.source, twice, "evaluation", "second readings of a step"))
        if lost := len(finite) - twice - len(kept):
            tell(left_out(self.source, lost, "evaluation", "of steps that were made again after a restart"))
        num_surviving, kept = len(kept), complete_of(kept)
        ordered = kept if np.all(np.diff(kept.compute) > 0) else kept.at(np.lexsort((kept.step, kept.compute)))
        num_dropped, num_incomplete = len(evaluations) - len(finite), num_surviving - len(kept)
        return RunHistory(name, ordered, num_dropped, self.origin, num_incomplete)


def read_table(source: str, columns: Columns, run: str | None, tell: Tell) -> Table:
    """Raises UserError: what cannot be read, which column is missing or which of several is meant, and what helps."""
    return table_of(read_source(source, tell), source, columns, run, tell)


def table_of(found: Found, source: str, columns: Columns, run: str | None, tell: Tell) -> Table:
    """The same of rows that somebody has read. Raises UserError."""
    for condition in columns.where:
        if "=" not in condition:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
    sheet = found.sheet
    for condition in columns.where:
        name, _, value = condition.partition("=")
        sheet = sheet.only(_are(map(text_of, sheet.field(name)), value))
    if run is not None:
        sheet = sheet.only(_are(sheet.texts("run"), run))
    if sheet.has("dataset") and not any(condition.startswith("dataset=") for condition in columns.where):
        datasets = sheet.texts("dataset")
        own = {dataset for dataset in set(datasets) if is_own_curve(dataset)}
        sheet = sheet.only(np.array([dataset in own for dataset in datasets], dtype=bool))
    if not len(sheet):
        raise UserError(f"{source}: no row is left; check --where, --run and the file")
    pass_rate = _pass_rate(source, sheet, columns.pass_rate)
    if np.any(sheet.numbers(pass_rate).per_cent):
        tell(f"{source}: per cent signs in {pass_rate}, read as parts of 1")
    compute = _compute(source, sheet, columns, pass_rate)
    names = sheet.names
    sheet, unit = in_one_unit(source, sheet, compute, columns.devices if columns.seconds is not None else None, tell)
    chosen = replace(
        columns,
        compute=compute,
        pass_rate=pass_rate,
        standard_error=_optional(source, names, columns.standard_error, STANDARD_ERROR_NAMES, "--standard-error"),
        truncation_ratio=_optional(source, names, columns.truncation_ratio, TRUNCATION_NAMES, "--truncation-ratio"),
    )
    step = compute if unit == STEPS else find_column(names, STEP_ORDER)
    return Table(source, sheet, chosen, step, Origin(found.format, compute, pass_rate, unit))


def _are(texts: Iterable[str], wanted: str) -> Mask:
    return np.array([text == wanted for text in texts], dtype=bool)


def _pass_rate(source: str, sheet: Sheet, given: str | None) -> str:
    if given is not None:
        return _column(source, sheet.names, given, (), "--pass-rate")
    found = pass_rate_columns(sheet)
    if not found:
        return _column(source, sheet.names, None, PASS_RATE_NAMES, "--pass-rate")
    if len(found) > 1:
        raise UserError(f"{source}: {some(found)} could each be the pass rate; choose one with --pass-rate")
    return found[0]


def _compute(source: str, sheet: Sheet, columns: Columns, pass_rate: str) -> str:
    if columns.seconds is not None:
        if columns.compute is not None:
            raise UserError(f"--seconds {columns.seconds}: --compute is given too; leave one of them out")
        if columns.devices is None:
            raise UserError(f"--seconds {columns.seconds}: needs --devices, to count device-hours")
        return _column(source, sheet.names, columns.seconds, (), "--seconds")
    if columns.devices is not None:
        raise UserError(f"--devices {columns.devices:g}: needs --seconds, the column of the time that passed")
    if columns.compute is not None:
        return _column(source, sheet.names, columns.compute, (), "--compute")
    found = compute_columns(sheet, pass_rate)
    if not found:
        return _column(source, sheet.names, None, COMPUTE_NAMES, "--compute")
    if len(found) > 1:
        raise UserError(f"{source}: {some(found)} could each be the compute; choose one with --compute")
    return found[0]


def _column(source: str, names: list[str], given: str | None, usual: tuple[str, ...], option: str) -> str:
    found = find_column(names, usual if given is None else (given,))
    if found is None:
        missing = f"no column {given!r}" if given is not None else f"none of the columns {', '.join(usual)}"
        raise UserError(f"{source}: {missing}; name one of {some(names)} with {option}")
    return found


def _optional(source: str, names: list[str], given: str | None, usual: tuple[str, ...], option: str) -> str | None:
    if given is None and find_column(names, usual) is None:
        return None
    return _column(source, names, given, usual, option)
