"""A source's rows, kept by column.

A million rows as mappings take a gigabyte and a minute. By column they take about what the file does, and the columns
that nobody asks for are never looked at.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.bounds import MAX_COLUMN_NAME_CHARS, MAX_SPELLINGS, refuse_above, refuse_wide
from rollcast.curves.curve_row import PER_CENT, Row
from rollcast.scaling.law.curve import Array

AT_ONCE = 512
"""Rows that are looked at in one go: so few stay in the processor's cache."""
MAX_KEPT_NUMBERS = 20_000_000
"""Of all columns that were read as numbers; those of further columns are read again when they are asked for."""
_BETWEEN = "\x00"
"""What no text has, between the fields of a packed column."""
Mask = NDArray[np.bool_]
Item = TypeVar("Item")


class PackedTexts(Sequence[str]):
    """The fields of one column of a table of text, in as many bytes as the file has for them."""

    def __init__(self, chunks: list[str], ends: list[int]) -> None:
        self._chunks = chunks
        """Of many fields each."""
        self._ends = ends
        """The number of fields up to the end of each chunk."""

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, place: Any) -> Any:
        wanted = range(len(self))[place]
        chunk = bisect_right(self._ends, wanted)
        return self._chunks[chunk].split(_BETWEEN)[wanted - (self._ends[chunk - 1] if chunk else 0)]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self.chunks())

    def chunks(self) -> Iterator[list[str]]:
        """All fields, many in one go."""
        return (chunk.split(_BETWEEN) for chunk in self._chunks)

    def has(self, character: str) -> bool:
        """Whether any field has it."""
        return any(character in chunk for chunk in self._chunks)

    def replaced(self, old: str, new: str) -> PackedTexts:
        """Every field with `new` for `old`."""
        return PackedTexts([chunk.replace(old, new) for chunk in self._chunks], self._ends)


def packed(names: Sequence[str], chunks: Iterable[list[list[str]]]) -> dict[str, PackedTexts]:
    """Rows of one text for each name, many in one go, by column."""
    columns: list[list[str]] = [[] for _ in names]
    ends: list[int] = []
    for chunk in chunks:
        if chunk:
            ends.append(len(chunk) + (ends[-1] if ends else 0))
            refuse_wide(ends[-1], len(names))
            for column, fields in zip(columns, zip(*chunk, strict=True), strict=True):
                column.append(_BETWEEN.join(fields))
    return {name: PackedTexts(column, ends) for name, column in zip(names, columns, strict=True)}


def in_chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """So many as are looked at in one go, the last fewer."""
    waiting = iter(items)
    while chunk := list(islice(waiting, AT_ONCE)):
        yield chunk


class SparseCells(Sequence[Any]):
    """The fields of a column that not every row has; None where there is none."""

    def __init__(self, places: array[int], values: list[Any], length: int) -> None:
        self._places = places
        """Ascending rows of `values`."""
        self._values = values
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        wanted = range(self._length)[place]
        found = bisect_left(self._places, wanted)
        there = found < len(self._places) and self._places[found] == wanted
        return self._values[found] if there else None

    def __iter__(self) -> Iterator[Any]:
        cells = [None] * self._length
        for place, value in zip(self._places, self._values, strict=True):
            cells[place] = value
        return iter(cells)

    def given(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The rows that have a field, ascending, and these fields."""
        return np.frombuffer(self._places, dtype=np.int64), self._values

    def only(self, keep: Mask, place_of: NDArray[np.int64], length: int) -> SparseCells:
        """Of the rows where `keep` (n,) is true; each row's new place, and their number."""
        places = np.frombuffer(self._places, dtype=np.int64)
        mine = keep[places]
        moved = array("q", place_of[places[mine]].tobytes())
        return SparseCells(moved, list(compress(self._values, mine)), length)

    def __bool__(self) -> bool:
        return any(value is not None for value in self._values)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A column as numbers; (n,) each.

    Attributes:
        values: nan where there is none; a field with a per cent sign is a part of 1.
        given: fields that are not empty.
        odd: fields that are given and no number.
        per_cent: fields that end with a per cent sign.
    """

    values: Array
    given: Mask
    odd: Mask
    per_cent: Mask

    def __getitem__(self, mask: Mask) -> Numbers:
        return Numbers(self.values[mask], self.given[mask], self.odd[mask], self.per_cent[mask])


def numbers_of(cells: Iterable[Any], length: int) -> Numbers:
    """What stands in a column, as `curve_row.real_number` reads a field."""
    if isinstance(cells, np.ndarray):
        is_there, never = np.isfinite(cells), np.broadcast_to(False, length)
        return Numbers(cells, is_there, never, never)
    found = Numbers(np.full(length, np.nan), *(np.zeros(length, dtype=bool) for _ in range(3)))
    if isinstance(cells, SparseCells):
        places, values = cells.given()
        given = numbers_of(values, len(values))
        found.values[places], found.given[places] = given.values, given.given
        found.odd[places], found.per_cent[places] = given.odd, given.per_cent
        return found
    is_text, start = isinstance(cells, PackedTexts), 0
    for chunk in cells.chunks() if isinstance(cells, PackedTexts) else in_chunks(cells):
        part = slice(start, start + len(chunk))
        start += len(chunk)
        try:
            if not is_text and bool in set(map(type, chunk)):
                raise TypeError
            found.values[part] = np.fromiter(map(float, chunk), dtype=float, count=len(chunk))
            found.given[part] = True
        except (TypeError, ValueError, OverflowError):
            _one_by_one(chunk, Numbers(found.values[part], found.given[part], found.odd[part], found.per_cent[part]))
    return found


def _one_by_one(chunk: list[Any], found: Numbers) -> None:
    for place, cell in enumerate(chunk):
        if cell is None or cell == "":
            continue
        found.given[place] = True
        text = str(cell).strip()
        found.per_cent[place] = is_share = text.endswith(PER_CENT)
        try:
            found.values[place] = float(text[:-1]) / 100 if is_share else float(text)
        except ValueError:
            found.odd[place] = True


class _Written:
    """All columns as they are written, read when one is asked for."""

    def __init__(self, read: Callable[[], Mapping[str, Sequence[Any]]]) -> None:
        self._read = read

    @cached_property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        return self._read()


class _WrittenColumn(Sequence[Any]):
    """One of them."""

    def __init__(self, written: _Written, name: str, length: int) -> None:
        self._written = written
        self._name = name
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, place: Any) -> Any:
        return self._written.columns[self._name][place]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._written.columns[self._name])


class Sheet:
    """Columns of equal length, in the order of the source; a field is None where its row has none."""

    def __init__(self, cells: Mapping[str, Sequence[Any] | Array], num_rows: int) -> None:
        self._cells = dict(cells)
        self._num_rows = num_rows
        self._numbers: dict[str, Numbers] = {}
        self._folded: dict[str, list[str]] = {}
        """Name in lower case -> the names of that spelling."""
        for name in self._cells:
            self._folded.setdefault(name.casefold(), []).append(name)
        refuse_above(max(map(len, self._cells), default=0), MAX_COLUMN_NAME_CHARS, "characters in a column's name")
        refuse_above(max(map(len, self._folded.values()), default=0), MAX_SPELLINGS, "columns of one name")

    @classmethod
    def of_numbers(cls, columns: Mapping[str, Array], as_written: Callable[[], Mapping[str, Sequence[Any]]]) -> Sheet:
        """Of columns that hold nothing but numbers. `as_written`: their fields, which are hardly ever asked for."""
        length = len(next(iter(columns.values())))
        written = _Written(as_written)
        sheet = cls({name: _WrittenColumn(written, name, length) for name in columns}, length)
        yes, no = np.broadcast_to(True, length), np.broadcast_to(False, length)
        sheet._numbers = {name: Numbers(values, yes, no, no) for name, values in columns.items()}
        return sheet

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> Sheet:
        """Of mappings by column, which are taken one after another."""
        columns: dict[str, tuple[array[int], list[Any]]] = {}
        count = 0
        for chunk in in_chunks(rows):
            alike = all(row.keys() == chunk[0].keys() for row in chunk)
            for name in chunk[0] if alike else dict.fromkeys(chain.from_iterable(chunk)):
                places, values = columns.setdefault(name, (array("q"), []))
                there = range(len(chunk)) if alike else [place for place, row in enumerate(chunk) if name in row]
                places.extend(range(count, count + len(chunk)) if alike else (count + place for place in there))
                values.extend(row[name] for row in map(chunk.__getitem__, there))
            count += len(chunk)
            refuse_wide(count, len(columns))
        cells: dict[str, Sequence[Any]] = {
            name: values if len(values) == count else SparseCells(places, values, count)
            for name, (places, values) in columns.items()
        }
        return cls(cells, count)

    def __len__(self) -> int:
        return self._num_rows

    @property
    def names(self) -> list[str]:
        """Of its columns."""
        return list(self._cells)

    def has(self, name: str) -> bool:
        """Whether there is such a column, whatever the case of its name."""
        return bool(self._named(name))

    def cells(self, name: str) -> Sequence[Any] | Array:
        """The fields of the column of this very name."""
        return self._cells[name]

    def field(self, name: str) -> Sequence[Any] | Array:
        """The fields of the column, whatever the case of its name; of several such the first that a row has."""
        named = self._named(name)
        if not named:
            return [None] * self._num_rows
        found = self._cells[named[0]]
        for other in named[1:]:
            found = [beside if cell is None else cell for cell, beside in zip(found, self._cells[other], strict=True)]
        return found

    def texts(self, name: str) -> list[str]:
        """The same as texts; empty for what is no text and nothing (0, false, none)."""
        if not self.has(name):
            return [""] * self._num_rows
        return [str(cell or "") for cell in self.field(name)]

    def numbers(self, name: str | None) -> Numbers:
        """The column as numbers, whatever the case of its name; none where there is no such column."""
        if name is None or not self._named(name):
            return numbers_of(np.broadcast_to(np.nan, self._num_rows), self._num_rows)
        if name in self._numbers:
            return self._numbers[name]
        found = numbers_of(self.field(name), self._num_rows)
        if (len(self._numbers) + 1) * self._num_rows <= MAX_KEPT_NUMBERS:
            self._numbers[name] = found
        return found

    def _named(self, name: str) -> list[str]:
        """The columns of that name, the one of its very spelling first."""
        return sorted(self._folded.get(name.casefold(), []), key=lambda other: other != name)

    def has_texts(self, name: str) -> bool:
        """Whether the column of this very name may hold something else than numbers, as far as is known."""
        numbers = self._numbers.get(name)
        return numbers is None or bool(np.any(numbers.odd | numbers.per_cent | ~numbers.given))

    def only(self, keep: Mask) -> Sheet:
        """The rows where `keep` (n,) is true, and the columns of which they have a field."""
        if keep.all():
            return self
        place_of, num_kept = np.cumsum(keep, dtype=np.int64) - 1, int(keep.sum())
        kept: dict[str, Sequence[Any] | Array] = {}
        for name, cells in self._cells.items():
            if isinstance(cells, np.ndarray):
                kept[name] = cells[keep]
            elif isinstance(cells, SparseCells):
                if there := cells.only(keep, place_of, num_kept):
                    kept[name] = there
            else:
                fields = list(compress(cells, keep))
                if any(field is not None for field in fields):
                    kept[name] = fields
        return Sheet(kept, num_kept)

    def renamed(self, to: Callable[[str], str]) -> Sheet:
        """With other names for its columns; of two of one name the later stays."""
        return Sheet({to(name): cells for name, cells in self._cells.items()}, self._num_rows)

    def beside(self, name: str, cells: Sequence[Any] | Array) -> Sheet:
        """With a column more, or with other fields in one."""
        return Sheet({**self._cells, name: cells}, self._num_rows)
