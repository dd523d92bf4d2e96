"""The requested part of a sheet: its rows, the columns that hold the curve, and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.columns import Columns, CurveColumns, curve_columns, some
from rollcast.curves.left_out import Tell
from rollcast.curves.origin import Origin
from rollcast.curves.sheet import Mask, Numbers, Sheet, not_a_number
from rollcast.curves.times import in_one_unit
from rollcast.telemetry.names import is_own_curve

MAX_KINDS = 1_000
"""Values of a text column. One with more values does not distinguish curves."""
MIN_ROWS_PER_KIND = 3
"""A text that hardly ever recurs (a date, a comment) does not distinguish curves."""
LABELS = ("dataset", "metric")
"""Columns that distinguish curves however often their values recur."""
MAX_SECONDS_AHEAD = 86_400.0
"""How far the time of an evaluation may be ahead of our clock: a day, as in another time zone."""


@dataclass(frozen=True)
class CurveSheet:
    """The requested part of a sheet.

    Attributes:
        sheet: numbers in its column of compute.
        columns: those that hold the curve.
        asked: what the user specified about the columns.
    """

    sheet: Sheet
    columns: CurveColumns
    asked: Columns

    @property
    def origin(self) -> Origin:
        """What the log was read as."""
        return Origin(self.sheet.format, self.columns.compute, self.columns.pass_rate, self.columns.unit)

    def runs(self) -> list[str]:
        """The runs that have an evaluation, in the order of the log; one without a name if no column names them."""
        names = np.array(self.sheet.texts("run"), dtype=object)[self.sheet.numbers(self.columns.pass_rate).given]
        return list(dict.fromkeys(names.tolist())) or [""]

    def of_run(self, run: str) -> CurveSheet:
        """The rows of one run."""
        return replace(self, sheet=self.sheet.only(_equal(self.sheet.texts("run"), run)))


def curve_sheet(sheet: Sheet, asked: Columns, run: str | None, tell: Tell) -> CurveSheet:
    """The requested rows, and the columns that hold their curve. `run`: None = all runs.

    Raises UserError: no row is left, or a column is missing or not clear.
    """
    conditions = [*asked.where, *([] if run is None else [f"run={run}"])]
    for condition in conditions:
        name, equals, value = condition.partition("=")
        if not equals:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
        sheet = sheet.only(_equal(sheet.texts(name), value))
    if sheet.has("dataset") and not any(condition.startswith("dataset=") for condition in asked.where):
        sheet = sheet.only(np.array([is_own_curve(dataset) for dataset in sheet.texts("dataset")], dtype=bool))
    if not len(sheet):
        raise UserError(f"no row is left; check {asked.option('where')}, --run and the file")
    columns = curve_columns(sheet, asked)
    if np.any(sheet.numbers(columns.pass_rate).per_cent):
        tell(f"per cent signs in {columns.pass_rate}, read as parts of 1")
    if asked.unit is None:
        sheet, unit = in_one_unit(sheet, columns.compute, columns.unit, asked.devices, tell)
        columns = replace(columns, unit=unit)
    return CurveSheet(sheet, columns, asked)


def _equal(texts: Sequence[str], wanted: str) -> Mask:
    return np.array([text == wanted for text in texts], dtype=bool)


def malformed(curve: CurveSheet, named: dict[str, Numbers], now: float) -> tuple[Mask, str]:
    """(n,) evaluations with an invalid value in one of the columns, and a sentence on the first of them."""
    sheet = curve.sheet
    columns = curve.columns
    is_evaluation = named[columns.pass_rate].given
    is_malformed = np.zeros(len(sheet), dtype=bool)
    first = len(sheet)
    complaint = ""
    for name, numbers in named.items():
        is_odd = numbers.odd & is_evaluation
        is_malformed |= is_odd
        if np.any(is_odd) and (row := int(np.argmax(is_odd))) < first:
            first = row
            complaint = not_a_number(sheet.texts(name)[row], name)
    is_negative = is_evaluation & (named[columns.compute].values < 0)
    if np.any(is_negative) and not complaint:
        least = float(np.min(named[columns.compute].values[is_negative]))
        complaint = (
            f"{columns.compute} is {least:g} in a row; compute counts from the run's start, so leave out what came "
            "before it"
        )
    is_malformed |= is_negative
    if columns.time is not None:
        time = named[columns.time].values
        is_other_time = is_evaluation & ~((time > 0) & (time <= now + MAX_SECONDS_AHEAD))
        if np.any(is_other_time) and not complaint:
            complaint = f"{columns.time} is {time[is_other_time][0]:g}, needs Unix seconds"
        is_malformed |= is_other_time
    return is_malformed, complaint


def refuse_mixture(curve: CurveSheet, is_evaluation: Mask) -> None:
    """Raises UserError if the evaluations are of several runs, or a text differs between some of equal compute."""
    sheet = curve.sheet.only(is_evaluation)
    option = curve.asked.option("where")
    runs = list(dict.fromkeys(sheet.texts("run")))
    if len(runs) > 1:
        raise UserError(f"holds {len(runs)} runs; choose one of {some(runs)} with {option} run=NAME")
    clashes: dict[str, int] = {}
    kinds_of: dict[str, list[str]] = {}
    for name in sheet.names:
        kinds = _kinds(sheet.fields(name))
        recurs = name.casefold() in LABELS or MIN_ROWS_PER_KIND * len(kinds) <= len(sheet)
        if len(kinds) > 1 and len(sheet.fields(name)) == len(sheet) and recurs:
            kinds_of[name] = kinds
            row = _first_clash(sheet.texts(name), sheet.texts(curve.columns.compute))
            if row is not None:
                clashes[name] = row
    if clashes:
        name = min(clashes, key=lambda column: clashes[column])
        raise UserError(
            f"{name} differs between rows of equal {curve.columns.compute}; "
            f"choose one of {some(kinds_of[name])} with {option} {name}=VALUE"
        )


def _kinds(fields: Sequence[Any]) -> list[str]:
    """The different texts of a column in their order; empty if a number is among them, or if they are too many."""
    kinds: dict[str, None] = {}
    for text in map(str, fields):
        if text not in kinds:
            kinds[text] = None
            if _is_number(text) or len(kinds) > MAX_KINDS:
                return []
    return list(kinds)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _first_clash(texts: Sequence[str], computes: Sequence[str]) -> int | None:
    """The first row whose text is not the one that came first with its compute."""
    first: dict[str, str] = {}
    for row, (text, compute) in enumerate(zip(texts, computes, strict=True)):
        if first.setdefault(compute, text) != text:
            return row
    return None
