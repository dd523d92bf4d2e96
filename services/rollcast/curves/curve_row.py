"""Rows of a CSV or JSONL file of evaluations: what service and commands alike take from them, and what they refuse."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rollcast.config.curve_columns import find_column
from rollcast.config.errors import UserError
from rollcast.curves.bounds import shown

Row = dict[str, Any]
DELIMITERS = ",;\t"
PER_CENT = "%"
LABELS = ("dataset", "metric")
"""Columns that tell curves apart at once; any other text does where its values recur."""
MOST_KINDS = 1_000
"""Values of a text column, at most; one with more tells no curves apart."""
LARGEST_STEP = 2**53
"""Whole numbers beyond it are no steps: floats do not tell them from their neighbours."""
MOST_RESTARTS = 0.25
"""Restarts in a row of the file, at most; one that seems to hold more is in no order of time."""


def delimiter_of(header: str) -> str:
    """The one of comma, semicolon and tab that makes most columns of a CSV's header."""
    return max(DELIMITERS, key=lambda delimiter: _num_columns(header, delimiter))


def _num_columns(header: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=delimiter), []))
    except csv.Error:  # one field, of the length of a wide header
        return 0


def heading(names: Sequence[str]) -> list[str]:
    """A header's names without the spaces around them; what has none is called by its place.

    Raises ValueError where two columns bear one name: either could be meant.
    """
    stripped = [name.strip() or f"column {place}" for place, name in enumerate(names, start=1)]
    twice = [name for name, count in Counter(stripped).items() if count > 1]
    if twice:
        raise ValueError(f"two columns are called {shown(twice[0])!r}; rename one of them")
    return stripped


def field(row: Mapping[str, Any], name: str) -> Any:
    """The value in the column, whatever its case; None where there is none."""
    if name in row:
        return row[name]
    found = find_column(row, (name,))
    return None if found is None else row[found]


def meets(row: Mapping[str, Any], conditions: Iterable[str]) -> bool:
    """Whether the row meets every COLUMN=VALUE."""
    pairs = (condition.partition("=") for condition in conditions)
    return all(text_of(field(row, name)) == value for name, _, value in pairs)


def whole_number(value: Any) -> int | None:
    """A step, or None where the value is none; a part of an epoch is none, and so is what only looks whole."""
    try:
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < LARGEST_STEP else None
    except (TypeError, ValueError, OverflowError):
        return None


def is_fraction(value: Any) -> bool:
    """Whether it is a number with a part behind the point."""
    try:
        return math.isfinite(number := float(value)) and not number.is_integer()
    except (TypeError, ValueError, OverflowError):
        return False


def real_number(value: Any, column: str) -> float:
    """The number; one with a per cent sign is a part of 1. Raises UserError where the value of the column is none."""
    text = str(value).strip()
    try:
        return float(text[:-1]) / 100 if text.endswith(PER_CENT) else float(text)
    except ValueError:
        remedy = ", as 0.53: a decimal point, and nothing between thousands" if "," in str(value) else ""
        raise UserError(f"column {shown(column)} holds {shown(str(value))!r}, needs a number{remedy}") from None


class MixedRows:
    """Tells whether rows are of several measures or runs: forecast as one curve they would look like one."""

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
            if is_number_or_empty(kind) or len(self._kinds[column]) > MOST_KINDS:
                del self._kinds[column], self._first[column]
                self._clashing.pop(column, None)
            elif self._first[column].setdefault(compute, kind) != kind:
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
        clashing: columns of text that differ at equal compute, the first clash first, and their values.
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


class Restarts:
    """Tells incarnations by steps that go back, or by a step that is evaluated again at another compute."""

    def __init__(self) -> None:
        self._num_rows = 0
        self._before: int | None = None
        self._evaluated: tuple[int, str] | None = None
        self.first_steps: dict[int, int] = {}
        """Incarnation after the first -> its first step."""
        self._number = 1

    def incarnation(self, step: int | None, compute: str | None) -> int:
        """Of the next row. `compute`: as the file writes it; None: the row is no evaluation."""
        self._num_rows += 1
        if step is not None:
            again = compute is not None and self._evaluated is not None and self._evaluated[0] == step
            other = again and self._evaluated != (step, compute)
            if (self._before is not None and step < self._before) or other:
                self._number += 1
                self.first_steps[self._number] = step
            self._before = step
            if compute is not None:
                self._evaluated = (step, compute)
        return self._number

    @property
    def in_order_of_time(self) -> bool:
        """A file with so many restarts is in none."""
        return len(self.first_steps) <= MOST_RESTARTS * self._num_rows


def some(names: Sequence[str]) -> str:
    """The first ten."""
    return ", ".join(map(shown, names[:10])) + (", ..." if len(names) > 10 else "")


def text_of(value: Any) -> str:
    """Of a field; empty where there is none."""
    return "" if value is None else str(value)


def is_number_or_empty(text: str) -> bool:
    """Whether the text tells no kinds of rows apart."""
    try:
        float(text)
    except ValueError:
        return text == ""
    return True
