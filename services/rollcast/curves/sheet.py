"""The columns of one log. Every format is read into a sheet, and every evaluation of a file is made
from one.

A foreign file that exceeds a limit is refused in one sentence, before it takes time or memory.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, compress, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollcast.scaling.law.curve import Array

MAX_ROWS = 2_000_000
"""Rows of a file, and lines of a text."""
MAX_COLUMNS = 10_000
"""Names of metrics in a file. A trainer logs a hundred, or some thousand if it logs every layer."""
MAX_NAME_CHARS = 300
"""Characters of a name at each level of nested objects; the rest is cut."""
ROWS_AT_ONCE = 512
"""Rows that are put into columns together: few enough to stay in the processor's cache."""
MAX_STEP = 2**53
"""Larger whole numbers are not steps: floats cannot distinguish them from their neighbors."""
EMPTY_TEXTS = {"None", "none", "null", "NULL", "NA", "N/A", "n/a"}
"""Ways to write that there is no number."""
TRUTH_TEXTS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
"""Ways to write an outcome, in lower case: JSON's true and false come as bools, a CSV's as
texts."""
RULE_MARKS = "-:="
"""A field of these alone is empty, or a part of the line below a header."""
PER_CENT = "%"
RUN = "run"
"""The column with the name of the run, in files that hold several."""
Row = dict[str, Any]
Mask = NDArray[np.bool_]
Item = TypeVar("Item")


class TooMuch(ValueError):  # noqa: N818  (a finding, of which the reader makes a sentence with the file's name)
    """A file exceeds a limit. The message follows the name of the file."""


def refuse_above(count: int, limit: int, plural_noun: str) -> None:
    """Raises TooMuch for a count of `plural_noun` above its limit."""
    if count > limit:
        raise TooMuch(f"holds more than {limit:,} {plural_noun}")


def refuse_wide(num_columns: int) -> None:
    """Raises TooMuch for a table of too many columns."""
    refuse_above(num_columns, MAX_COLUMNS, "columns")


def refuse_json(text: str) -> None:
    """Raises TooMuch for JSON that would make too many values."""
    # Brackets, commas and colons in one piece of JSON: an upper limit of the number of its values.
    max_json_marks = 12_000_000
    if len(text) > max_json_marks:
        marks = sum(map(text.count, "[{,:"))
        refuse_above(marks, max_json_marks, "values of JSON in one piece")


def shorten_name(name: str) -> str:
    """The name as a sentence shows it."""
    # Characters of a name in a sentence; the rest is cut.
    shown_chars = 80
    return name if len(name) <= shown_chars else f"{name[:shown_chars]}.."


@dataclass(frozen=True, eq=False)
class Numbers:
    """Fields as numbers; (n,) each.

    Attributes:
        values: nan if there is no number; a field with a per cent sign is a part of 1, true or yes
            is 1, false or no 0.
        is_given: fields that are not empty.
        odd: fields that are given but are not numbers.
        per_cent: fields that end with a per cent sign.
    """

    values: Array
    is_given: Mask
    odd: Mask
    per_cent: Mask

    @property
    def whole(self) -> tuple[NDArray[np.int64], Mask]:
        """(n,) each: the whole numbers, 0 in other rows, and which rows have one."""
        with np.errstate(invalid="ignore"):
            is_whole = (np.floor(self.values) == self.values) & (np.abs(self.values) < MAX_STEP)
        # `100%` is read as 1.0, but it is a progress and not step 1.
        is_whole &= ~self.per_cent
        return np.where(is_whole, self.values, 0.0).astype(np.int64), is_whole


@dataclass(frozen=True, eq=False)
class Column:
    """The fields of one column. Empty fields are left out: in most rows of a training log no
    evaluation was made.

    Attributes:
        rows: (m,) the row of each field, ascending.
        fields: m, in the order of their rows, without None and empty texts.
    """

    rows: NDArray[np.int64]
    fields: list[Any]

    @cached_property
    def numbers(self) -> Numbers:
        """(m,) its fields as numbers."""
        count = len(self.fields)
        values = np.full(count, np.nan)
        is_given = np.ones(count, bool)
        odd = np.zeros(count, bool)
        per_cent = np.zeros(count, bool)
        try:
            values = np.fromiter(map(float, self.fields), dtype=float, count=count)
        except (TypeError, ValueError, OverflowError):
            for field_index, field in enumerate(self.fields):
                text = str(field).strip()
                if text in EMPTY_TEXTS or not text.strip(RULE_MARKS):
                    is_given[field_index] = False
                elif (truth := TRUTH_TEXTS.get(text.casefold())) is not None:
                    values[field_index] = truth
                else:
                    unit = 100 if text.endswith(PER_CENT) else 1
                    per_cent[field_index] = unit == 100
                    try:
                        values[field_index] = float(text.removesuffix(PER_CENT)) / unit
                    except ValueError:
                        odd[field_index] = True
        return Numbers(values, is_given, odd, per_cent)

    @cached_property
    def is_truth(self) -> bool:
        """Whether every field is true or false, or yes or no."""
        return bool(self.fields) and all(
            str(field).strip().casefold() in TRUTH_TEXTS for field in self.fields
        )


@dataclass(frozen=True, eq=False)
class Sheet:
    """Columns over the same rows, in the order of the log.

    Attributes:
        format: what the log was read as, for the user.
        budget_steps: the step at which the log says that its run will end; None if it does not.
        titles: names of experiments that the log prints, each with the row before which it does.
    """

    format: str
    columns: Mapping[str, Column]
    num_rows: int
    budget_steps: float | None = None
    titles: tuple[tuple[int, str], ...] = ()

    @classmethod
    def from_rows(cls, format: str, rows: Iterable[Row]) -> "Sheet":
        """Rows as mappings by column. They are read one after another and not kept."""

        def make_columns(chunk: list[Row]) -> dict[str, list[Any]]:
            names = dict.fromkeys(chain.from_iterable(chunk))
            refuse_wide(len(names))  # before a list is made for each
            return {name: [row.get(name) for row in chunk] for name in names}

        return cls.from_chunks(
            format, [], ((len(chunk), make_columns(chunk)) for chunk in in_chunks(rows))
        )

    @classmethod
    def from_chunks(
        cls,
        format: str,
        header: Iterable[str],
        chunks: Iterable[tuple[int, Mapping[str, Sequence[Any]]]],
    ) -> "Sheet":
        """Consecutive rows, many in one chunk: their number, and one field for each of them by
        column.

        `header`: columns that are there even if no row has a field. Raises TooMuch.
        """
        rows_by_name: dict[str, list[NDArray[np.int64]]] = {name: [] for name in header}
        fields_by_name: dict[str, list[Any]] = {name: [] for name in header}
        num_rows = 0
        # Rows times columns, also where most of them are empty.
        max_cells = 100_000_000
        for count, chunk in chunks:
            rows = np.arange(num_rows, num_rows + count)
            num_rows += count
            for name, fields in chunk.items():
                given_rows = rows
                if None in fields or "" in fields:
                    is_given = [field is not None and field != "" for field in fields]
                    given_rows = rows[is_given]
                    fields = list(compress(fields, is_given))
                rows_by_name.setdefault(name, []).append(given_rows)
                fields_by_name.setdefault(name, []).extend(fields)
            refuse_above(num_rows, MAX_ROWS, "rows")
            refuse_wide(len(rows_by_name))
            # Such a table would be too large even if most of its fields were empty.
            num_cells = num_rows * len(rows_by_name)
            refuse_above(num_cells, max_cells, "fields in its rows and columns")
        longest_name = max(map(len, rows_by_name), default=0)
        refuse_above(longest_name, 3_000, "characters in a column's name")
        # Columns whose names differ only in upper and lower case.
        num_spellings = max(Counter(map(str.casefold, rows_by_name)).values(), default=0)
        refuse_above(num_spellings, 20, "columns of one name")
        none = np.empty(0, dtype=np.int64)
        columns = {
            name: Column(np.concatenate([none, *rows_by_name[name]]), fields_by_name[name])
            for name in rows_by_name
        }
        return cls(format, columns, num_rows)

    @cached_property
    def _spellings(self) -> dict[str, list[str]]:
        """Name in lower case -> the names that differ from it in upper and lower case alone."""
        spellings: dict[str, list[str]] = {}
        for name in self.columns:
            spellings.setdefault(name.casefold(), []).append(name)
        return spellings

    def column(self, name: str) -> Column | None:
        """The column of that name; upper and lower case are the same.

        If several are spelled alike, their fields together: of several in a row that of the exact
        spelling counts.
        """
        spellings = self._spellings.get(name.casefold(), [])
        if len(spellings) < 2:
            return self.columns[spellings[0]] if spellings else None
        fields_by_row: dict[int, Any] = {}
        for spelling in (*reversed(spellings), name):
            if spelling in self.columns:
                column = self.columns[spelling]
                fields_by_row.update(zip(column.rows.tolist(), column.fields, strict=True))
        rows = sorted(fields_by_row)
        return Column(np.array(rows, dtype=np.int64), [fields_by_row[row] for row in rows])

    def texts(self, name: str) -> list[str]:
        """(n,) the fields of a column as texts; an empty text for a row without a field."""
        column = self.column(name)
        return [""] * self.num_rows if column is None else self.column_texts(column)

    def column_texts(self, column: Column) -> list[str]:
        """(n,) as `texts`, for one column of the sheet, whatever others are spelled alike."""
        texts = [""] * self.num_rows
        for row, field in zip(column.rows.tolist(), column.fields, strict=True):
            texts[row] = str(field)
        return texts

    def numbers(self, name: str | None) -> Numbers:
        """(n,) a column as numbers; nothing is given if there is no such column."""
        column = None if name is None else self.column(name)
        if column is not None and len(column.fields) == self.num_rows:
            return column.numbers
        # One value stands for all rows until there is a column: a million rows lack a dozen of
        # them.
        never = np.broadcast_to(np.False_, self.num_rows)
        row_numbers = Numbers(np.broadcast_to(np.nan, self.num_rows), never, never, never)
        if column is None:
            return row_numbers
        row_numbers = Numbers(row_numbers.values.copy(), never.copy(), never.copy(), never.copy())
        for row_values, field_values in zip(
            vars(row_numbers).values(), vars(column.numbers).values(), strict=True
        ):
            row_values[column.rows] = field_values
        return row_numbers

    def only(self, keep: Mask) -> "Sheet":
        """The rows for which `keep` (n,) is true, and the columns in which one
        of them has a field.
        """
        if keep.all():
            return self
        new_row = np.cumsum(keep, dtype=np.int64) - 1
        columns: dict[str, Column] = {}
        for name, column in self.columns.items():
            is_kept = keep[column.rows]
            if is_kept.any():
                columns[name] = Column(
                    new_row[column.rows[is_kept]], list(compress(column.fields, is_kept))
                )
        num_kept = np.append(0, new_row + 1)
        titles = tuple((int(num_kept[row]), title) for row, title in self.titles)
        return replace(self, columns=columns, num_rows=int(keep.sum()), titles=titles)

    def with_names(self, format: str, rename: Callable[[str], str]) -> "Sheet":
        """A sheet with another format and other names.

        If two names become equal, the later column is kept.
        """
        columns = {rename(name): column for name, column in self.columns.items()}
        return replace(self, format=format, columns=columns)

    def with_titles(self, titles: Sequence[tuple[int, str]]) -> "Sheet":
        """With names of experiments, each with the row before which it is printed."""
        return replace(self, titles=tuple(titles))

    def __or__(self, columns: Mapping[str, Column]) -> "Sheet":
        """With more columns, or with other fields in some."""
        return replace(self, columns={**self.columns, **columns})


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Lists of `ROWS_AT_ONCE` items; the last may be shorter."""
    waiting = iter(items)
    while chunk := list(islice(waiting, ROWS_AT_ONCE)):
        yield chunk


def not_a_number(field: str, column: str) -> str:
    """A sentence on a field that should hold a number."""
    remedy = ", as 0.53: a decimal point, and nothing between thousands" if "," in field else ""
    return f"column {shorten_name(column)} holds {shorten_name(field)!r}, needs a number{remedy}"
