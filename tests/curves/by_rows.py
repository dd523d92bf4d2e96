"""The evaluations of a file, one row after another: another way to what `curves.evaluations` makes
of its columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import find_column, some
from rollcast.curves.columns.labels import MAX_KINDS
from rollcast.curves.columns.restarts import MAX_RESTARTS_PER_ROW, MIN_STEPS_AGAIN
from rollcast.curves.columns.words import (
    COMPUTE_NAMES,
    LABELS,
    STANDARD_ERROR_NAMES,
    STEP_NAMES,
    TRUNCATION_NAMES,
)
from rollcast.curves.evaluations import CurvePoint
from rollcast.curves.sheet import MAX_STEP, PER_CENT, Row, not_a_number
from rollcast.runfolder.survival import NEVER_ENDED, graded_share


@dataclass(frozen=True)
class Settings:
    """The columns of the file."""

    run: str
    compute: str | None
    pass_rate: str | None
    standard_error: str | None
    truncation_ratio: str | None
    step: str | None
    scale: float


class RowEvaluations:
    """The evaluations of one run's rows, which are given in the order of the file."""

    def __init__(self, settings: Settings, begins: frozenset[int] = frozenset()) -> None:
        """`begins`: numbers of the rows from which on the log goes back, as another pass found
        them.
        """
        self._settings = settings
        self._begins = begins
        self._restarts = Restarts()
        self.looks: list[Look] = []
        """One for each row."""
        self._first_steps: dict[int, int] = {}
        """Incarnation that a column tells -> its first step."""
        self._told_starts: dict[int, int] = {}
        """Incarnation -> the step from which it continued, as a column tells it."""
        self._has_steps = True
        self.mixture = MixedRows()
        self.compute_column = "compute"

    def take(self, row: Row, number: int, pass_rate_names: tuple[str, ...]) -> CurvePoint | None:
        """The row as an evaluation; None for one without a pass rate (of training, say).

        `number`: of the row in the file, from 0. `pass_rate_names`: usual ones, where none was
        given. Compute is nan where the row tells none. Raises ValueError where a column holds no
        number.
        """
        settings = self._settings
        step = self._step(row)
        pass_rate = _value(row, settings.pass_rate, pass_rate_names)
        if pass_rate is None:
            self._incarnation(row, step, None)
            return None
        self.compute_column = (
            find_column(row, _wanted(settings.compute, COMPUTE_NAMES)) or self.compute_column
        )
        compute = _value(row, settings.compute, COMPUTE_NAMES)
        written = str(row.get(self.compute_column, ""))
        self.mixture.add(row, written)
        error = _value(row, settings.standard_error, STANDARD_ERROR_NAMES)
        compute = math.nan if compute is None else compute
        start_up = _value(row, None, ("start_up_device_hours",))
        is_finite = math.isfinite(compute) and math.isfinite(pass_rate)
        return CurvePoint(
            run=settings.run,
            dataset="",
            incarnation=self._incarnation(row, step if is_finite else None, written),
            step=step if step is not None else number + 1 if compute > 0 else 0,
            pass_rate=pass_rate * settings.scale,
            compute=compute,
            standard_error=None if error is None else error * settings.scale,
            trained_tokens=_value(row, None, ("trained_tokens",)),
            samples=_value(row, None, ("samples",)),
            at=0.0,
            truncation_ratio=_value(row, settings.truncation_ratio, TRUNCATION_NAMES),
            # By numbers of rows nobody can tell what a step costs usually, so no start-up either.
            start_up=0.0 if start_up is None and step is None else start_up,
            devices=_value(row, None, ("devices",)),
            graded_share=_graded_share(row),
        )

    def starts(self) -> dict[int, int]:
        """Incarnation -> the last step before it that still counts; every one where the file is in
        no order of time.
        """
        if self._first_steps:
            return {
                number: step - 1 for number, step in self._first_steps.items()
            } | self._told_starts
        if not self._restarts.in_order_of_time:
            return dict.fromkeys(self._restarts.first_steps, NEVER_ENDED)
        return {number: step - 1 for number, step in self._restarts.first_steps.items()}

    def _incarnation(self, row: Row, step: int | None, compute: str | None) -> int:
        given = whole_number(field(row, "incarnation"))
        kind = frozenset(name for name, value in row.items() if value not in (None, ""))
        self.looks.append(
            (None if given is not None else step, frozenset() if compute is not None else kind)
        )
        if given is None:
            return self._restarts.incarnation(
                step, compute, begins=len(self.looks) - 1 in self._begins
            )
        if step is not None:
            self._first_steps[given] = min(step, self._first_steps.get(given, step))
            if (start := whole_number(field(row, "started_from"))) is not None:
                self._told_starts[given] = start
        return given

    def _step(self, row: Row) -> int | None:
        """None where the row tells none; from the first part of an epoch on no row does: they are
        no steps.
        """
        column = find_column(row, _wanted(self._settings.step, STEP_NAMES))
        step = None if column is None else whole_number(row[column])
        self._has_steps &= column is None or not is_fraction(row[column])
        return step if self._has_steps else None


def _wanted(given: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a column, in the order in which they are looked for."""
    return usual if given is None else (given,)


def _graded_share(row: Row) -> float | None:
    """Of the prompts asked, as `EvaluationRecord.graded_share` has it."""
    graded, asked = _count(row, ("num_prompts",)), _count(row, ("asked_prompts",))
    missing = _count(row, ("missing_prompts",))
    if asked is None and graded is not None and missing is not None:
        asked = graded + missing
    return graded_share(graded, asked)


def _count(row: Row, usual: tuple[str, ...]) -> float | None:
    """A number, or None where the row tells none: it is no part of the curve
    and refuses no file.
    """
    name = find_column(row, usual)
    try:
        return None if name is None or row[name] in (None, "") else number_of(row[name])
    except (TypeError, ValueError):
        return None


def _value(row: Row, given: str | None, usual: tuple[str, ...]) -> float | None:
    """The number in the column that was given, or else in the first with a usual name; None where
    there is none.
    """
    name = find_column(row, _wanted(given, usual))
    return None if name is None or row[name] in (None, "") else real_number(row[name], name)


class MixedRows:
    """Tells whether rows are of several measures or runs: forecast as one curve they would look
    like one.
    """

    def __init__(self) -> None:
        self._num_rows = 0
        self._runs: dict[str, None] = {}
        self._kinds: dict[str, dict[str, None]] = {}
        """Text column -> its values, in the order of the file."""
        self._first: dict[str, dict[str, str]] = {}
        """Text column -> compute -> the value that came first with it."""
        self._clashing: dict[str, None] = {}

    def add(self, row: Mapping[str, Any], compute: str) -> None:
        """Take in one evaluation. `compute`: of the row, as the file writes it."""
        if self._num_rows == 0:
            self._kinds = {column: {} for column in row}
            self._first = {column: {} for column in row}
        self._num_rows += 1
        self._runs[text_of(field(row, "run"))] = None
        for column in list(self._kinds):
            kind = text_of(row.get(column))
            self._kinds[column][kind] = None
            if is_number_or_empty(kind) or len(self._kinds[column]) > MAX_KINDS:
                del self._kinds[column], self._first[column]
                self._clashing.pop(column, None)
            elif compute and self._first[column].setdefault(compute, kind) != kind:
                self._clashing[column] = None

    def complaint(self, compute: str, option: str) -> str | None:
        """What is mixed and how to choose, or None; see `mixed`."""
        clashing = [(column, list(self._kinds[column])) for column in self._clashing]
        return mixed(self._num_rows, list(self._runs), clashing, compute, option)


def mixed(
    num_rows: int, runs: list[str], clashing: list[tuple[str, list[str]]], compute: str, option: str
) -> str | None:
    """One sentence on what is mixed and how to choose, or None.

    Args:
        clashing: columns of text that differ at equal compute, the first clash first, and their
            values.
        compute: the column's name.
        option: what takes a condition.
    """
    if len(runs) > 1:
        return f"holds {len(runs)} runs; choose one of {some(runs)} with {option} run=NAME"
    for column, kinds in clashing:
        # A text that hardly ever recurs (a date, a comment) tells no measures apart.
        if column.casefold() in LABELS or len(kinds) <= num_rows / 3:
            return (
                f"{column} differs between rows of equal {compute}; "
                f"choose one of {some(kinds)} with {option} {column}=VALUE"
            )
    return None


Look = tuple[int | None, frozenset[str]]
"""The step of a row, if it tells one, and its kind: the columns with a field, or none for an
evaluation."""


def rows_that_go_back(looks: list[Look]) -> frozenset[int]:
    """Numbers of the rows from which on steps are made again."""
    rows = [(number, step, kind) for number, (step, kind) in enumerate(looks) if step is not None]
    falls = [place for place in range(1, len(rows)) if rows[place][1] < rows[place - 1][1]]
    stretches = [end - begin for begin, end in zip([0, *falls], falls, strict=False)]
    is_many = len(falls) > MAX_RESTARTS_PER_ROW * len(rows)
    if is_many and (any(rows[place][1] != rows[0][1] for place in falls) or min(stretches) < 2):
        return frozenset(rows[place][0] for place in falls)
    begins = []
    first = 0
    for place in falls:
        again: set[int] = set()
        for _, step, kind in rows[place:]:
            if step > rows[place - 1][1]:
                break
            again.add(step)
            before = [at for _, at, other in rows[first:place] if other == kind]
            if len(again) == MIN_STEPS_AGAIN or (before and step < before[-1]):
                begins.append(rows[place][0])
                first = place
                break
    return frozenset(begins)


class Restarts:
    """Tells incarnations by steps that go back, or by a step that is evaluated again at another
    compute.
    """

    def __init__(self) -> None:
        self._num_rows = 0
        self._evaluated: tuple[int, str] | None = None
        self.first_steps: dict[int, int] = {}
        """Incarnation after the first -> its first step."""
        self._number = 1

    def incarnation(self, step: int | None, compute: str | None, *, begins: bool) -> int:
        """Of the next row. `compute`: as the file writes it; None: the row is no evaluation."""
        self._num_rows += 1
        if step is not None:
            again = (
                compute is not None and self._evaluated is not None and self._evaluated[0] == step
            )
            other = again and self._evaluated != (step, compute)
            if begins or other:
                self._number += 1
                self.first_steps[self._number] = step
            if compute is not None:
                self._evaluated = (step, compute)
        return self._number

    @property
    def in_order_of_time(self) -> bool:
        """A file with so many restarts is in none."""
        return len(self.first_steps) <= MAX_RESTARTS_PER_ROW * self._num_rows


def text_of(value: Any) -> str:
    """Of a field; empty where there is none."""
    return "" if value is None else str(value)


def number_of(value: Any) -> float:
    """As `float`, and 1 or 0 for true and false in either spelling."""
    text = str(value).strip().casefold()
    return float(text == "true") if text in ("true", "false") else float(value)


def is_number_or_empty(text: str) -> bool:
    """Whether the text tells no kinds of rows apart."""
    try:
        number_of(text)
    except ValueError:
        return text == ""
    return True


def field(row: Mapping[str, Any], name: str) -> Any:
    """The value in the column, whatever its case; None where there is none."""
    if name in row:
        return row[name]
    found = find_column(row, (name,))
    return None if found is None else row[found]


def whole_number(value: Any) -> int | None:
    """A step, or None where the value is none; a part of an epoch is none, and so is what only
    looks whole.
    """
    try:
        number = number_of(value)
        return int(number) if number.is_integer() and abs(number) < MAX_STEP else None
    except (TypeError, ValueError, OverflowError):
        return None


def is_fraction(value: Any) -> bool:
    """Whether it is a number with a part behind the point."""
    try:
        return math.isfinite(number := number_of(value)) and not number.is_integer()
    except (TypeError, ValueError, OverflowError):
        return False


def real_number(value: Any, column: str) -> float:
    text = str(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith(PER_CENT) else number_of(text)
    except ValueError:
        raise UserError(not_a_number(str(value), column)) from None
