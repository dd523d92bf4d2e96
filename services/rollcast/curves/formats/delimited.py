"""CSV with commas, semicolons or tabs: what stands right of the last heading is left out, what a row lacks is empty."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_COLUMNS, MAX_ROW_CHARS, refuse_above
from rollcast.curves.curve_row import DELIMITERS, delimiter_of, heading, some
from rollcast.curves.decimal_commas import has_decimal_commas
from rollcast.curves.formats import wandb_csv
from rollcast.curves.formats.found import Found
from rollcast.curves.left_out import Tell, counted
from rollcast.curves.sheet import PackedTexts, Sheet, in_chunks, packed
from rollcast.scaling.law.curve import Array

NAMES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV"}
NAMES_DELIMITER = {"sep=,", "sep=;", "sep=\t", "sep="}
"""The line in which Excel names the delimiter."""


def found(text: str, path: Path, tell: Tell) -> Found:
    """Raises UserError where it is no CSV, or two columns bear one name."""
    lines = StringIO(text, newline="\n")
    first = _first_line(lines)
    refuse_above(max(map(first.count, DELIMITERS)), MAX_COLUMNS, "columns")
    try:
        delimiter = delimiter_of(first)
        header = _heading(next(_fields(chain([first], lines), delimiter), []), path)
        refuse_above(len(header), MAX_COLUMNS, "columns")
        begin = lines.tell()

        def columns() -> dict[str, PackedTexts]:
            lines.seek(begin)
            return _columns(_fields(lines, delimiter), header, path, tell)

        if (table := _all_numbers(lines, delimiter, len(header))) is not None:
            sheet = Sheet.of_numbers(dict(zip(header, table.T, strict=True)), columns)
        else:
            texts = columns() if delimiter == "," else _with_points(columns(), path, tell)
            sheet = Sheet(texts, len(texts[header[0]]))
    except csv.Error as error:
        raise UserError(f"{path}: is no CSV ({error}); mend it or give a JSONL file") from None
    if wandb_csv.is_panel(header):
        return Found(wandb_csv.PANEL_NAME, wandb_csv.by_run(sheet))
    return Found(wandb_csv.HISTORY_NAME if wandb_csv.is_history(header) else NAMES[delimiter], sheet)


class _RowLines:
    """The lines of a table, none of whose rows is too long: quotes may join any number of lines to one row."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._row_chars = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self._row_chars += len(line)
            refuse_above(self._row_chars, MAX_ROW_CHARS, "characters in one row")
            yield line

    def next_row(self) -> None:
        """The lines that follow are of another row."""
        self._row_chars = 0


def _fields(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The fields of each row."""
    bounded = _RowLines(lines)
    for fields in csv.reader(bounded, delimiter=delimiter):
        bounded.next_row()
        yield fields


def _first_line(lines: StringIO) -> str:
    """Of the header: behind blank lines, and behind the line that names the delimiter."""
    first = next(line for line in lines if line.strip())
    return next(lines, first) if first[:9].strip().casefold() in NAMES_DELIMITER else first


def _all_numbers(lines: StringIO, delimiter: str, width: int) -> Array | None:
    """(rows, width) where every field of every line is a number, as most long tables are; else None.

    numpy reads those in half the time. What it refuses (a text, an empty field, a short line) it refuses at once.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where there is no line it only warns
        try:
            table = np.loadtxt(lines, delimiter=delimiter, quotechar='"', comments=None, ndmin=2)
        except (ValueError, UserWarning):
            return None
    return table if table.shape[1] == width else None


def _heading(names: Sequence[str], path: Path) -> list[str]:
    try:
        return heading(names)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _columns(rows: Iterable[list[str]], header: list[str], path: Path, tell: Tell) -> dict[str, PackedTexts]:
    width = len(header)
    short = long = 0

    def cut(rows: Iterable[list[str]]) -> Iterator[list[str]]:
        nonlocal long
        for fields in rows:
            if len(fields) > width and any(fields[width:]):
                long += 1
            yield fields[:width]

    def fitted(chunk: list[list[str]]) -> list[list[str]]:
        """Each of as many fields as there are columns, without empty lines."""
        nonlocal short
        if set(map(len, chunk)) == {width}:
            return chunk
        short += sum(0 < len(fields) < width for fields in chunk)
        return [fields + [""] * (width - len(fields)) for fields in chunk if fields]

    columns = packed(header, map(fitted, in_chunks(cut(rows))))
    if short:
        tell(f"{path}: {counted(short, 'line')} with fewer fields than columns, {width}; the rest is empty")
    if long:
        tell(f"{path}: {counted(long, 'line')} with more fields than columns, {width}; the rest is left out")
    return columns


def _with_points(columns: dict[str, PackedTexts], path: Path, tell: Tell) -> dict[str, PackedTexts]:
    decimal = [name for name, fields in columns.items() if fields.has(",") and has_decimal_commas(fields)]
    if decimal:
        tell(f"{path}: decimal commas in {some(decimal)}, read as points")
    return {name: fields.replaced(",", ".") if name in decimal else fields for name, fields in columns.items()}
