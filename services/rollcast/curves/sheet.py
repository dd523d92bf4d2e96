"""The columns of one log. Every format is read into a sheet, and every evaluation of a file is made from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.bounds import MAX_COLUMN_NAME_CHARS, MAX_SPELLINGS, refuse_above, refuse_wide, shown
from rollcast.scaling.law.curve import Array

ROWS_AT_ONCE = 512
"""Rows that are put into columns together: few enough to stay in the processor's cache."""
MAX_KEPT_NUMBERS = 20_000_000
"""Numbers kept of all columns together, 160 MB. Further columns are converted again when they are used again."""
PER_CENT = "%"
RUN = "run"
"""The column with the name of the run, in files that hold several."""
Row = dict[str, Any]
Mask = NDArray[np.bool_]
Item = TypeVar("Item")


class Column:
    """The fields of one column. Empty fields are left out: in most rows of a training log no evaluation was made."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int64]] = []
        self.fields: list[Any] = []
        """In the order of their rows, without None and empty texts."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """(m,) the row of each field, ascending."""
        if len(self._rows) != 1:
            self._rows = [np.concatenate([np.empty(0, dtype=np.int64), *self._rows])]
        return self._rows[0]

    def add(self, first_row: int, fields: Sequence[Any]) -> None:
        """Append the fields of consecutive rows."""
        rows = np.arange(first_row, first_row + len(fields))
        if None in fields or "" in fields:
            is_given = [field is not None and field != "" for field in fields]
            self._rows.append(rows[is_given])
            self.fields.extend(compress(fields, is_given))
        else:
            self._rows.append(rows)
            self.fields.extend(fields)

    def only(self, keep: Mask, new_row: NDArray[np.int64]) -> Column:
        """The fields of the rows for which `keep` (n,) is true. `new_row` (n,): the new number of a kept row."""
        is_kept = keep[self.rows]
        kept = Column()
        kept._rows = [new_row[self.rows[is_kept]]]
        kept.fields = list(compress(self.fields, is_kept))
        return kept


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers; (n,) each.

    Attributes:
        values: nan if the row has no number; a field with a per cent sign is a part of 1.
        given: fields that are not empty.
        odd: fields that are given but are not numbers.
        per_cent: fields that end with a per cent sign.
    """

    values: Array
    given: Mask
    odd: Mask
    per_cent: Mask


class Sheet:
    """Columns over the same rows, in the order of the log.

    Attributes:
        format: what the log was read as, for the user.
    """

    def __init__(self, format: str, columns: Mapping[str, Column], num_rows: int) -> None:
        self.format = format
        self._columns = dict(columns)
        self._num_rows = num_rows
        self._numbers: dict[str | None, Numbers] = {}
        self._spellings: dict[str, list[str]] = {}
        """Name in lower case -> the names that differ from it in upper and lower case alone."""
        for name in self._columns:
            self._spellings.setdefault(name.casefold(), []).append(name)
        refuse_above(max(map(len, self._columns), default=0), MAX_COLUMN_NAME_CHARS, "characters in a column's name")
        refuse_above(max(map(len, self._spellings.values()), default=0), MAX_SPELLINGS, "columns of one name")

    @classmethod
    def of_rows(cls, format: str, rows: Iterable[Row]) -> Sheet:
        """Rows as mappings by column. They are read one after another and not kept."""
        columns: dict[str, Column] = {}
        num_rows = 0
        for chunk in in_chunks(rows):
            names = dict.fromkeys(chain.from_iterable(chunk))
            refuse_wide(num_rows + len(chunk), len(columns.keys() | names))
            for name in names:
                columns.setdefault(name, Column()).add(num_rows, [row.get(name) for row in chunk])
            num_rows += len(chunk)
        return cls(format, columns, num_rows)

    @classmethod
    def of_table(cls, format: str, header: Sequence[str], chunks: Iterable[Sequence[Sequence[Any]]]) -> Sheet:
        """Rows as sequences of one field for each name in the header, many in one chunk."""
        columns = {name: Column() for name in header}
        num_rows = 0
        for chunk in chunks:
            refuse_wide(num_rows + len(chunk), len(columns))
            for column, fields in zip(columns.values(), zip(*chunk, strict=True), strict=False):
                column.add(num_rows, fields)
            num_rows += len(chunk)
        return cls(format, columns, num_rows)

    @classmethod
    def of_columns(cls, format: str, columns: Mapping[str, Sequence[Any]]) -> Sheet:
        """Columns of one length."""
        num_rows = max(map(len, columns.values()), default=0)
        sheet = cls(format, {}, num_rows)
        for name, fields in columns.items():
            sheet = sheet.with_column(name, fields)
        return sheet

    def __len__(self) -> int:
        return self._num_rows

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self._columns)

    def has(self, name: str) -> bool:
        """Whether there is such a column, in upper or lower case."""
        return name.casefold() in self._spellings

    def fields(self, name: str) -> list[Any]:
        """The fields of the column of this exact name, without the empty ones."""
        return self._columns[name].fields

    def cells(self, name: str) -> list[str]:
        """(n,) the fields of the column of this exact name as texts; an empty text for a row without a field."""
        return self._texts([self._columns[name]])

    def texts(self, name: str) -> list[str]:
        """As `cells`, for a name in upper or lower case."""
        return self._texts(self._named(name))

    def _texts(self, columns: list[Column]) -> list[str]:
        texts = [""] * self._num_rows
        for column in reversed(columns):
            for row, field in zip(column.rows.tolist(), column.fields, strict=True):
                texts[row] = str(field)
        return texts

    def numbers(self, name: str | None) -> Numbers:
        """A column as numbers; nothing is given if there is no such column. Upper and lower case are the same."""
        if name in self._numbers:
            return self._numbers[name]
        never = np.zeros(self._num_rows, dtype=bool)
        found = Numbers(np.full(self._num_rows, np.nan), never, never.copy(), never.copy())
        for column in reversed([] if name is None else self._named(name)):
            _convert(column, found)
        if (len(self._numbers) + 1) * self._num_rows <= MAX_KEPT_NUMBERS:
            self._numbers[name] = found
        return found

    def only(self, keep: Mask) -> Sheet:
        """The rows for which `keep` (n,) is true, and the columns in which one of them has a field."""
        if keep.all():
            return self
        new_row = np.cumsum(keep, dtype=np.int64) - 1
        columns = {name: column.only(keep, new_row) for name, column in self._columns.items()}
        return Sheet(self.format, {name: column for name, column in columns.items() if column.fields}, int(keep.sum()))

    def renamed(self, format: str, rename: Callable[[str], str]) -> Sheet:
        """A sheet with another format and other names. If two names become equal, the later column is kept."""
        return Sheet(format, {rename(name): column for name, column in self._columns.items()}, self._num_rows)

    def with_column(self, name: str, fields: Sequence[Any]) -> Sheet:
        """With one more column, or with other fields in one."""
        column = Column()
        column.add(0, fields)
        return Sheet(self.format, {**self._columns, name: column}, self._num_rows)

    def _named(self, name: str) -> list[Column]:
        """The columns of that name, the one spelled exactly so first: of several fields in a row the first counts."""
        spellings = sorted(self._spellings.get(name.casefold(), []), key=lambda spelling: spelling != name)
        return [self._columns[spelling] for spelling in spellings]


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of `ROWS_AT_ONCE` items; the last may be shorter."""
    waiting = iter(items)
    while chunk := list(islice(waiting, ROWS_AT_ONCE)):
        yield chunk


def not_a_number(field: str, column: str) -> str:
    """A sentence on a field that should hold a number."""
    remedy = ", as 0.53: a decimal point, and nothing between thousands" if "," in field else ""
    return f"column {shown(column)} holds {shown(field)!r}, needs a number{remedy}"


def _convert(column: Column, found: Numbers) -> None:
    """Write the numbers of a column into `found`."""
    found.given[column.rows] = True
    found.odd[column.rows] = False
    found.per_cent[column.rows] = False
    try:
        if bool in set(map(type, column.fields)):
            raise TypeError("true and false are not numbers")
        found.values[column.rows] = np.fromiter(map(float, column.fields), dtype=float, count=len(column.fields))
    except (TypeError, ValueError, OverflowError):
        for row, field in zip(column.rows.tolist(), column.fields, strict=True):
            text = str(field).strip()
            found.per_cent[row] = text.endswith(PER_CENT)
            try:
                found.values[row] = float(text.removesuffix(PER_CENT)) / (100 if found.per_cent[row] else 1)
            except ValueError:
                found.values[row] = np.nan
                found.odd[row] = True
