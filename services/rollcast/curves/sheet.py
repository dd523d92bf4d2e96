"""The columns of one log. Every format is read into a sheet, and every evaluation of a file is made from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.bounds import MAX_COLUMN_NAME_CHARS, refuse_above, refuse_wide, shown
from rollcast.scaling.curve import Array

ROWS_AT_ONCE = 512
"""Rows that are put into columns together: few enough to stay in the processor's cache."""
PER_CENT = "%"
RUN = "run"
"""The column with the name of the run, in files that hold several."""
Row = dict[str, Any]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Parts = dict[str, list[tuple[Rows, Sequence[Any]]]]
"""Of each column, the fields of consecutive chunks of rows."""
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class Numbers:
    """Fields as numbers; (n,) each.

    Attributes:
        values: nan if there is no number; a field with a per cent sign is a part of 1.
        given: fields that are not empty.
        odd: fields that are given but are not numbers.
        per_cent: fields that end with a per cent sign.
    """

    values: Array
    given: Mask
    odd: Mask
    per_cent: Mask

    @classmethod
    def none(cls, length: int) -> Numbers:
        """No field is given."""
        return cls(np.full(length, np.nan), *(np.zeros(length, dtype=bool) for _ in range(3)))


@dataclass(frozen=True, eq=False)
class Column:
    """The fields of one column. Empty fields are left out: in most rows of a training log no evaluation was made.

    Attributes:
        rows: (m,) the row of each field, ascending.
        fields: m, in the order of their rows, without None and empty texts.
    """

    rows: Rows
    fields: list[Any]

    @cached_property
    def numbers(self) -> Numbers:
        """(m,) its fields as numbers."""
        found = Numbers.none(len(self.fields))
        found.given[:] = True
        try:
            if bool in set(map(type, self.fields)):
                raise TypeError("true and false are not numbers")
            found.values[:] = np.fromiter(map(float, self.fields), dtype=float, count=len(self.fields))
        except (TypeError, ValueError, OverflowError):
            for place, field in enumerate(self.fields):
                text = str(field).strip()
                found.per_cent[place] = text.endswith(PER_CENT)
                try:
                    found.values[place] = float(text.removesuffix(PER_CENT)) / (100 if found.per_cent[place] else 1)
                except ValueError:
                    found.odd[place] = True
        return found


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns over the same rows, in the order of the log.

    Attributes:
        format: what the log was read as, for the user.
    """

    format: str
    columns: dict[str, Column]
    num_rows: int

    @classmethod
    def of_rows(cls, format: str, rows: Iterable[Row]) -> Sheet:
        """Rows as mappings by column. They are read one after another and not kept."""
        parts: Parts = {}
        num_rows = 0
        for chunk in in_chunks(rows):
            names = dict.fromkeys(chain.from_iterable(chunk))
            refuse_wide(num_rows + len(chunk), len(parts.keys() | names))
            for name in names:
                parts.setdefault(name, []).append(_given([row.get(name) for row in chunk], num_rows))
            num_rows += len(chunk)
        return cls(format, _joined(parts), num_rows)

    @classmethod
    def of_table(cls, format: str, header: Sequence[str], chunks: Iterable[Sequence[Sequence[Any]]]) -> Sheet:
        """Rows as sequences of one field for each name in the header, many in one chunk."""
        parts: Parts = {name: [] for name in header}
        num_rows = 0
        for chunk in chunks:
            refuse_wide(num_rows + len(chunk), len(parts))
            for name, fields in zip(header, zip(*chunk, strict=True), strict=False):
                parts[name].append(_given(fields, num_rows))
            num_rows += len(chunk)
        return cls(format, _joined(parts), num_rows)

    @classmethod
    def of_columns(cls, format: str, columns: Mapping[str, Sequence[Any]]) -> Sheet:
        """Columns of one length."""
        num_rows = max(map(len, columns.values()), default=0)
        return cls(format, _joined({name: [_given(fields, 0)] for name, fields in columns.items()}), num_rows)

    def column(self, name: str) -> Column | None:
        """The column of that name, or else the first that differs from it only in upper and lower case."""
        if name in self.columns:
            return self.columns[name]
        return next((column for other, column in self.columns.items() if other.casefold() == name.casefold()), None)

    def texts(self, name: str) -> list[str]:
        """(n,) the fields of a column as texts; an empty text for a row without a field."""
        texts = [""] * self.num_rows
        column = self.column(name)
        if column is not None:
            for row, field in zip(column.rows.tolist(), column.fields, strict=True):
                texts[row] = str(field)
        return texts

    def numbers(self, name: str | None) -> Numbers:
        """(n,) a column as numbers; nothing is given if there is no such column."""
        column = None if name is None else self.column(name)
        if column is not None and len(column.fields) == self.num_rows:
            return column.numbers
        found = Numbers.none(self.num_rows)
        if column is not None:
            found.values[column.rows] = column.numbers.values
            found.given[column.rows] = column.numbers.given
            found.odd[column.rows] = column.numbers.odd
            found.per_cent[column.rows] = column.numbers.per_cent
        return found

    def only(self, keep: Mask) -> Sheet:
        """The rows for which `keep` (n,) is true, and the columns in which one of them has a field."""
        if keep.all():
            return self
        new_row = np.cumsum(keep, dtype=np.int64) - 1
        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            is_kept = keep[column.rows]
            if is_kept.any():
                columns[name] = Column(new_row[column.rows[is_kept]], list(compress(column.fields, is_kept)))
        return Sheet(self.format, columns, int(keep.sum()))

    def renamed(self, format: str, rename: Callable[[str], str]) -> Sheet:
        """A sheet with another format and other names. If two names become equal, the later column is kept."""
        return Sheet(format, {rename(name): column for name, column in self.columns.items()}, self.num_rows)

    def with_column(self, name: str, fields: Sequence[Any]) -> Sheet:
        """With one more column, or with other fields in one."""
        return Sheet(self.format, self.columns | _joined({name: [_given(fields, 0)]}), self.num_rows)


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of `ROWS_AT_ONCE` items; the last may be shorter."""
    waiting = iter(items)
    while chunk := list(islice(waiting, ROWS_AT_ONCE)):
        yield chunk


def not_a_number(field: str, column: str) -> str:
    """A sentence on a field that should hold a number."""
    remedy = ", as 0.53: a decimal point, and nothing between thousands" if "," in field else ""
    return f"column {shown(column)} holds {shown(field)!r}, needs a number{remedy}"


def _given(fields: Sequence[Any], first_row: int) -> tuple[Rows, Sequence[Any]]:
    """The rows that have a field, and these fields."""
    rows = np.arange(first_row, first_row + len(fields))
    if None not in fields and "" not in fields:
        return rows, fields
    is_given = [field is not None and field != "" for field in fields]
    return rows[is_given], list(compress(fields, is_given))


def _joined(parts: Parts) -> dict[str, Column]:
    refuse_above(max(map(len, parts), default=0), MAX_COLUMN_NAME_CHARS, "characters in a column's name")
    columns: dict[str, Column] = {}
    for name, found in parts.items():
        rows = np.concatenate([np.empty(0, dtype=np.int64), *(rows for rows, _ in found)])
        columns[name] = Column(rows, list(chain.from_iterable(fields for _, fields in found)))
    return columns
