"""A run of any framework as a CSV or JSONL file that grows: one row for each evaluation."""

from __future__ import annotations

import csv
import json
import math
import time
from dataclasses import replace

from rollcast.config.curve_columns import COMPUTE_NAMES, EVALUATION_NAMES, PASS_RATE_NAMES, find_column
from rollcast.config.services import CurveFile
from rollcast.curves.curve_row import Row, delimiter_of, field, heading, meets, real_number
from rollcast.curves.decimal_commas import is_decimal, with_point
from rollcast.curves.evaluations import CurvePoint, checked
from rollcast.curves.origin import Origin
from rollcast.curves.reading import Reading
from rollcast.curves.row_evaluations import RowEvaluations, wanted
from rollcast.curves.units import TIME_UNITS, unit_of
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
        self._found = self._void = False
        self._complaint = ""
        self._begin()

    def _begin(self) -> None:
        """Forget what the file was before it was written anew."""
        self._void = self._found
        """Whether evaluations were told that are not this file's."""
        self._header: list[str] | None = None
        """Of a CSV file; None for JSONL."""
        self._delimiter = ","
        self._decimal_commas = False
        """Whether a number of the file has a comma that cannot be but decimal."""
        self._early = b""
        """A line of JSON that was taken before it ended; it is not taken again when it has."""
        self._twice = ""
        """Which two columns bear one name."""
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
                if number == 0:
                    self._begin()
                early, self._early = self._early, b""
                if not early or line.strip() != early:
                    self._take(line, number, now, reading)
        last = self._file.unended().strip()
        if last != self._early and _is_json_object(last):
            if self._file.num_lines == 0:
                self._begin()
            self._take(last, self._file.num_lines, now, reading)
            self._early = last
        if self._twice:
            raise SourceAway(f"run {name!r}: {path}: {self._twice}")
        if (mixed := self._rows.mixture.complaint(self._rows.compute_column, "where:")) is not None:
            raise SourceAway(f"run {name!r}: {path}: {mixed}")
        if reading.evaluations and (starts := self._rows.starts()):
            reading.starts[name] = starts
        if self._found:
            reading.origins[name] = self._origin()
        else:
            raise SourceAway(f"run {name!r}: no evaluation in {path} yet{self._complaint}")
        if self._void:
            self._void = False
            reading.anew.add(name)
        return reading

    def _take(self, line: bytes, number: int, now: float, reading: Reading) -> None:
        """Note what the line tells, or why it tells nothing."""
        try:
            row = self._row(line, number)
            evaluation = None if row is None else self._evaluation(row, number, now)
        except _MALFORMED as error:
            reading.skipped["bad_line"] += 1
            self._complaint = f"; line {number + 1}: {' '.join(str(error).split())[:200]}"
            return
        if evaluation is None:
            return
        self._found = True
        key = (evaluation.incarnation, evaluation.step)
        if key in self._keys:
            reading.skipped["duplicate"] += 1
            return
        self._keys.add(key)
        reading.evaluations.append(evaluation)

    def _row(self, line: bytes, number: int) -> Row | None:
        """The fields of a line by column; None for an empty line and for a header."""
        text = line.decode()
        if number == 0:
            text = text.removeprefix("\ufeff")
        if not text.strip():
            return None
        if text.lstrip().startswith("{"):
            row: Row = json.loads(text)
            return row
        if self._header is None:
            self._delimiter = delimiter_of(text)
            names = next(csv.reader([text], delimiter=self._delimiter))
            try:
                self._header = heading(names)
            except ValueError as error:
                self._header, self._twice = names, str(error)
            return None
        return dict(zip(self._header, self._fields(text), strict=False))

    def _fields(self, text: str) -> list[str]:
        """Of a line of CSV; decimal commas become points from the first on that cannot be but one."""
        fields = next(csv.reader([text], delimiter=self._delimiter))
        if self._delimiter == ",":
            return fields
        self._decimal_commas |= any(map(is_decimal, fields))
        return [with_point(field) for field in fields] if self._decimal_commas else fields

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
        if self._origin().unit not in TIME_UNITS:
            # Nothing starts up in steps or tokens, and devices do not change what they cost.
            found = replace(found, start_up=0.0, devices=None)
        return checked(replace(found, at=now if settings.time is None else _time(row, settings.time, now)))

    def _origin(self) -> Origin:
        column = self._rows.compute_column
        return Origin("file", column, self._settings.pass_rate or "pass_rate", unit_of(column))

    def _asked_for(self, row: Row) -> bool:
        where = self._settings.where
        if not any(condition.startswith("dataset=") for condition in where) and not is_own_curve(
            str(field(row, "dataset") or "")
        ):
            return False
        return meets(row, where)


def _is_json_object(line: bytes) -> bool:
    """Whether the line is whole although nothing ends it: an object of JSON tells its own end."""
    try:
        return line.startswith(b"{") and isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _time(row: Row, column: str, now: float) -> float:
    name = find_column(row, (column,))
    value = None if name is None or row[name] in (None, "") else real_number(row[name], name)
    if value is None or not 0 < value <= now + CLOCKS_APART_SECONDS:
        raise ValueError(f"{column} {'is empty' if value is None else f'{value:g}'}, needs Unix seconds")
    return value
