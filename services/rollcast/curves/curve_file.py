"""A run of any framework as a CSV or JSONL file that grows: one row for each evaluation."""

from __future__ import annotations

import csv
import json
import math
import time
from dataclasses import replace

from rollcast.config.curve_columns import COMPUTE_NAMES, EVALUATION_NAMES, PASS_RATE_NAMES, find_column
from rollcast.config.services import CurveFile
from rollcast.curves.curve_row import Row, delimiter_of, field, meets, real_number
from rollcast.curves.evaluations import CurvePoint, checked
from rollcast.curves.reading import Reading
from rollcast.curves.row_evaluations import RowEvaluations, wanted
from rollcast.runfolder.growing_file import GrowingFile
from rollcast.telemetry.names import is_own_curve
from rollcast.telemetry.prometheus_reader import SourceAway

_MALFORMED = (ValueError, TypeError, OverflowError, RecursionError, csv.Error)
CLOCKS_APART_SECONDS = 86_400.0
"""How far an evaluation's time may lie ahead of ours."""


class CurveFileReader:
    """New rows of one file. A row without a pass rate (of training, say) is passed over."""

    def __init__(self, settings: CurveFile) -> None:
        self._settings = settings
        self._file = GrowingFile(settings.path)
        self._found = False
        self._complaint = ""
        self._begin()

    def _begin(self) -> None:
        """Forget what the file was before it was written anew."""
        self._header: list[str] | None = None
        """Of a CSV file; None for JSONL."""
        self._delimiter = ","
        self._rows = RowEvaluations(self._settings)
        self._keys: set[tuple[int, int]] = set()
        """Incarnation and step of what was read."""

    def read(self) -> Reading:
        """The complete rows that came since the last look.

        Raises:
            SourceAway: there is no file yet, no evaluation was ever found in it, or it holds several runs or measures.
        """
        name, path = self._settings.run, self._settings.path
        if not path.is_file():
            raise SourceAway(f"run {name!r}: there is no file {path} yet")
        reading, now = Reading(), time.time()
        while lines := self._file.next_lines():
            for number, line in enumerate(lines, start=self._file.num_lines - len(lines)):
                try:
                    row = self._row(line, number)
                    evaluation = None if row is None else self._evaluation(row, number, now)
                except _MALFORMED as error:
                    reading.skipped["bad_line"] += 1
                    self._complaint = f"; line {number + 1}: {' '.join(str(error).split())[:200]}"
                    continue
                if evaluation is None:
                    continue
                self._found = True
                key = (evaluation.incarnation, evaluation.step)
                if key in self._keys:
                    reading.skipped["duplicate"] += 1
                    continue
                self._keys.add(key)
                reading.evaluations.append(evaluation)
        if (mixed := self._rows.mixture.complaint(self._rows.compute_column, "where:")) is not None:
            raise SourceAway(f"run {name!r}: {path}: {mixed}")
        if reading.evaluations and (starts := self._rows.starts()):
            reading.starts[name] = starts
        if not self._found:
            raise SourceAway(f"run {name!r}: no evaluation in {path} yet{self._complaint}")
        return reading

    def _row(self, line: bytes, number: int) -> Row | None:
        """The fields of a line by column; None for an empty line and for a header."""
        text = line.decode()
        if number == 0:
            text = text.removeprefix("\ufeff")
            self._begin()
        if not text.strip():
            return None
        if text.lstrip().startswith("{"):
            row: Row = json.loads(text)
            return row
        if self._header is None:
            self._delimiter = delimiter_of(text)
            self._header = [name.strip() for name in next(csv.reader([text], delimiter=self._delimiter))]
            return None
        return dict(zip(self._header, next(csv.reader([text], delimiter=self._delimiter)), strict=False))

    def _evaluation(self, row: Row, number: int, now: float) -> CurvePoint | None:
        """The row as an evaluation; None for one of training, and for one that is not asked for."""
        settings = self._settings
        if not self._asked_for(row):
            self._complaint = f"; line {number + 1} is not what `where` asks for"
            return None
        # A line of JSON tells its own columns only; a CSV's header tells whether there is a better one than the reward.
        usual = EVALUATION_NAMES if self._header is None else PASS_RATE_NAMES
        found = self._rows.take(row, number, usual)
        if found is None:
            self._complaint = f"; line {number + 1} names no {' or '.join(wanted(settings.pass_rate, usual))}"
            return None
        if math.isnan(found.compute):
            raise ValueError(f"names no {' or '.join(wanted(settings.compute, COMPUTE_NAMES))}")
        if found.pass_rate > 1:
            raise ValueError(f"pass rate {found.pass_rate:g} lies outside [0, 1]; scale: 0.01 reads per cent")
        return checked(replace(found, at=now if settings.time is None else _time(row, settings.time, now)))

    def _asked_for(self, row: Row) -> bool:
        where = self._settings.where
        if not any(condition.startswith("dataset=") for condition in where) and not is_own_curve(
            str(field(row, "dataset") or "")
        ):
            return False
        return meets(row, where)


def _time(row: Row, column: str, now: float) -> float:
    name = find_column(row, (column,))
    value = None if name is None or row[name] in (None, "") else real_number(row[name], name)
    if value is None or not 0 < value <= now + CLOCKS_APART_SECONDS:
        raise ValueError(f"{column} {'is empty' if value is None else f'{value:g}'}, needs Unix seconds")
    return value
