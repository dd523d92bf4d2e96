"""Rows of a CSV or JSONL file as evaluations of one run: for files that grow and for whole ones alike."""

from __future__ import annotations

import math

from rollcast.config.curve_columns import (
    ASKED_NAMES,
    COMPUTE_NAMES,
    DEVICES_NAMES,
    GRADED_NAMES,
    MISSING_NAMES,
    SAMPLES_NAMES,
    STANDARD_ERROR_NAMES,
    START_UP_NAMES,
    STEP_NAMES,
    TRAINED_TOKENS_NAMES,
    TRUNCATION_NAMES,
    find_column,
)
from rollcast.config.services import CurveFile
from rollcast.curves.curve_row import MixedRows, Restarts, Row, field, is_fraction, real_number, whole_number
from rollcast.curves.evaluations import CurvePoint
from rollcast.runfolder.completeness import graded_share
from rollcast.runfolder.survival import NEVER_ENDED


class RowEvaluations:
    """The evaluations of one run's rows, which are given in the order of the file."""

    def __init__(self, settings: CurveFile) -> None:
        self._settings = settings
        self._restarts = Restarts()
        self._first_steps: dict[int, int] = {}
        """Incarnation that a column tells -> its first step."""
        self._told_starts: dict[int, int] = {}
        """Incarnation -> the step from which it continued, as a column tells it."""
        self._has_steps = True
        self.mixture = MixedRows()
        self.compute_column = "compute"

    def take(self, row: Row, number: int, pass_rate_names: tuple[str, ...]) -> CurvePoint | None:
        """The row as an evaluation; None for one without a pass rate (of training, say).

        `number`: of the row in the file, from 0. `pass_rate_names`: usual ones, where none was given. Compute is nan
        where the row tells none. Raises ValueError where a column holds no number.
        """
        settings = self._settings
        step = self._step(row)
        pass_rate = _value(row, settings.pass_rate, pass_rate_names)
        if pass_rate is None:
            self._incarnation(row, step, None)
            return None
        self.compute_column = find_column(row, wanted(settings.compute, COMPUTE_NAMES)) or self.compute_column
        compute = _value(row, settings.compute, COMPUTE_NAMES)
        written = str(row.get(self.compute_column, ""))
        self.mixture.add(row, written)
        error = _value(row, settings.standard_error, STANDARD_ERROR_NAMES)
        compute = math.nan if compute is None else compute
        start_up = _value(row, None, START_UP_NAMES)
        is_finite = math.isfinite(compute) and math.isfinite(pass_rate)
        return CurvePoint(
            run=settings.run,
            dataset="",
            incarnation=self._incarnation(row, step if is_finite else None, written),
            step=step if step is not None else number + 1 if compute > 0 else 0,
            pass_rate=pass_rate * settings.scale,
            compute=compute,
            standard_error=None if error is None else error * settings.scale,
            trained_tokens=_value(row, None, TRAINED_TOKENS_NAMES),
            samples=_value(row, None, SAMPLES_NAMES),
            at=0.0,
            truncation_ratio=_value(row, settings.truncation_ratio, TRUNCATION_NAMES),
            # By numbers of rows nobody can tell what a step costs usually, so no start-up either.
            start_up=0.0 if start_up is None and step is None else start_up,
            devices=_value(row, None, DEVICES_NAMES),
            graded_share=_graded_share(row),
        )

    def starts(self) -> dict[int, int]:
        """Incarnation -> the last step before it that still counts; every one where the file is in no order of time."""
        if self._first_steps:
            return {number: step - 1 for number, step in self._first_steps.items()} | self._told_starts
        if not self._restarts.in_order_of_time:
            return dict.fromkeys(self._restarts.first_steps, NEVER_ENDED)
        return {number: step - 1 for number, step in self._restarts.first_steps.items()}

    def _incarnation(self, row: Row, step: int | None, compute: str | None) -> int:
        given = whole_number(field(row, "incarnation"))
        if given is None:
            return self._restarts.incarnation(step, compute)
        if step is not None:
            self._first_steps[given] = min(step, self._first_steps.get(given, step))
            if (start := whole_number(field(row, "started_from"))) is not None:
                self._told_starts[given] = start
        return given

    def _step(self, row: Row) -> int | None:
        """None where the row tells none; from the first part of an epoch on no row does: they are no steps."""
        column = find_column(row, wanted(self._settings.step, STEP_NAMES))
        step = None if column is None else whole_number(row[column])
        self._has_steps &= column is None or not is_fraction(row[column])
        return step if self._has_steps else None


def wanted(given: str | None, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Names of a column, in the order in which they are looked for."""
    return usual if given is None else (given,)


def _graded_share(row: Row) -> float | None:
    """Of the prompts asked, as `EvaluationRecord.graded_share` has it."""
    graded, asked = _count(row, GRADED_NAMES), _count(row, ASKED_NAMES)
    missing = _count(row, MISSING_NAMES)
    if asked is None and graded is not None and missing is not None:
        asked = graded + missing
    return graded_share(graded, asked)


def _count(row: Row, usual: tuple[str, ...]) -> float | None:
    """A number, or None where the row tells none: it is no part of the curve and refuses no file."""
    name = find_column(row, usual)
    try:
        return None if name is None or row[name] in (None, "") else float(row[name])
    except (TypeError, ValueError):
        return None


def _value(row: Row, given: str | None, usual: tuple[str, ...]) -> float | None:
    """The number in the column that was given, or else in the first with a usual name; None where there is none."""
    name = find_column(row, wanted(given, usual))
    return None if name is None or row[name] in (None, "") else real_number(row[name], name)
