"""CSV with commas, semicolons or tabs, and the tables that W&B exports.

Fields right of the last heading are left out; fields that a row lacks are empty.

The table of a panel of W&B has "Step" and, for each run, "RUN - metric","RUN - metric__MIN","RUN -
metric__MAX"; the columns of one run become rows of that run. The table of a run's history has
_step, _runtime and _timestamp next to the metrics.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import StringIO
from itertools import chain

from rollcast.config.errors import UserError
from rollcast.curves.amounts import format_count
from rollcast.curves.columns.choices import some
from rollcast.curves.columns.names import measures_success
from rollcast.curves.formats.log_file import LogFile, is_json, unknown_form
from rollcast.curves.sheet import (
    RUN,
    Column,
    Row,
    Sheet,
    in_chunks,
    refuse_above,
    refuse_wide,
    shorten_name,
)

NAMES = {
    ",": "CSV",
    ";": "CSV with semicolons",
    "\t": "TSV",
    "|": "table with bars",
    " ": "table with spaces",
}
LOOSE_DELIMITERS = ("|", " ")
"""Asked only if no other delimiter divides the header."""
COMMENT = "#"
PANEL_NAME = "W&B panel export"
HISTORY_NAME = "W&B run export"
ENDINGS = (".csv", ".tsv")
DELIMITER_LINES = {"sep=,", "sep=;", "sep=\t", "sep="}
"""The line in which Excel names the delimiter."""
_WITHOUT_A_POINT = re.compile(r"[-+]?(\d+|\d*,\d+)(e[-+]?\d+)?\s?%?|nan", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}\s?%?")
_PANEL_SEPARATOR = " - "
_PANEL_BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns with the least and the largest value, if the panel was smoothed or
sampled."""
_STEP_COUNTER = "_step"
_HISTORY_MARKS = ("_step", "_runtime", "_timestamp")
"""Two of these columns are in the history of a run."""


def recognises(log: LogFile) -> bool:
    """Whether the file is called a table, and is neither JSON nor binary.

    UTF-16, which has zero bytes, comes last.
    """
    return (
        log.path.suffix.casefold() in ENDINGS
        and b"\x00" not in log.content
        and not is_json(log.text)
    )


def read(log: LogFile) -> Sheet:
    """Raises UserError: it is not CSV, or two columns have one name, and either could be meant."""
    lines = StringIO(log.text, newline="\n")
    first = next((line for line in lines if line.strip()), "")
    if first.startswith(COMMENT):
        first = _after_comments(first, lines)
    if first[:9].strip().casefold() in DELIMITER_LINES:
        first = next(lines, first)
    # Before the csv module splits it: a hostile header may hold millions of delimiters.
    refuse_wide(max(first.count(mark) for mark in NAMES if mark not in LOOSE_DELIMITERS))
    delimiter = ","
    header: list[str] = []
    for candidate in NAMES:
        if candidate in LOOSE_DELIMITERS and len(header) > 1:
            continue  # names of columns may have spaces
        with suppress(csv.Error):  # one field, as long as a wide header
            reader = csv.reader([first], delimiter=candidate, skipinitialspace=candidate == " ")
            if len(fields := next(reader, [])) > len(header):
                header = fields
                delimiter = candidate
    try:
        rows = _rows(chain([first], lines), delimiter, log)
        # The header may continue in the next line, between quotes.
        header = [
            name.strip() or f"column {number}"
            for number, name in enumerate(next(rows, []), start=1)
        ]
        if len(set(header)) < len(header):
            (twice, _), *_ = Counter(header).most_common(1)
            if delimiter == " " and not measures_success(twice):  # a sentence
                raise unknown_form(log.path)
            raise UserError(
                f"{log.path}: two columns are called {shorten_name(twice)!r}; rename one of them"
            )
        format = (
            HISTORY_NAME if sum(mark in header for mark in _HISTORY_MARKS) > 1 else NAMES[delimiter]
        )
        chunks = (
            (len(chunk), dict(zip(header, zip(*chunk, strict=True), strict=True)))
            for chunk in in_chunks(rows)
        )
        sheet = Sheet.from_chunks(format, header, chunks)
    except csv.Error as error:
        raise UserError(f"{log.path}: is not CSV ({error}); fix it or give a JSONL file") from None
    if _is_panel(header):
        return _by_run(sheet)
    return sheet if delimiter == "," else _with_points(sheet, log)


def _after_comments(first: str, lines: StringIO) -> str:
    """The header: the last comment if it has as many names as the row after it has fields, else the
    line after it.
    """
    comment = first
    following = next(lines, "")
    while following.startswith(COMMENT):
        comment = following
        following = next(lines, "")
    names = comment.lstrip(COMMENT + " ")
    is_row = following.lstrip()[:1].isdigit() or following.lstrip()[:1] in ("-", ".")
    is_header = is_row and any(
        1 < len(names.split(mark)) == len(following.split(mark)) for mark in NAMES
    )
    if is_header and not is_json(names):
        lines.seek(lines.tell() - len(following))
        return names
    return following


def _rows(lines: Iterable[str], delimiter: str, log: LogFile) -> Iterator[list[str]]:
    """The header, and rows of as many fields; empty lines are not rows.

    Quotes may join any number of lines into one row, so its length is bounded.
    """
    row_chars = 0

    def bounded_lines() -> Iterator[str]:
        nonlocal row_chars
        for line in lines:
            row_chars += len(line)
            refuse_above(row_chars, 1 << 20, "characters in one row")
            yield line

    width = num_rows = num_short = num_long = 0
    for fields in csv.reader(
        bounded_lines(), delimiter=delimiter, skipinitialspace=delimiter == " "
    ):
        row_chars = 0
        if not fields:
            continue
        width = width or len(fields)
        refuse_wide(width)
        num_rows += 1
        if len(fields) == width:
            yield fields
        else:
            num_short += len(fields) < width
            num_long += any(fields[width:])
            yield fields[:width] + [""] * (width - len(fields))
    if delimiter == " " and num_short == num_rows - 1 > 0:
        raise UserError(
            f"{log.path}: the heading has more words than the rows have fields, so its names are "
            "unclear; join the words of each name by underscores, or separate the columns by tabs"
        )
    for count, more, rest in ((num_short, "fewer", "empty"), (num_long, "more", "left out")):
        if count:
            irregular_lines = (
                f"{format_count(count, 'line')} with {more} fields than columns, {width}"
            )
            log.tell(f"{log.path}: {irregular_lines}; the rest is {rest}")


def _is_panel(header: list[str]) -> bool:
    """Whether every column after the first belongs to a run, and one has columns of its bounds."""
    names = set(header)
    metrics = [name for name in header[1:] if not name.endswith(_PANEL_BOUNDS)]
    return (
        len(header) > 2
        and all(_PANEL_SEPARATOR in name for name in header[1:])
        and any(name + ending in names for name in metrics for ending in _PANEL_BOUNDS)
    )


def _by_run(sheet: Sheet) -> Sheet:
    """A panel's rows, one for each run that has a value there: run, the panel's axis,
    its metrics.
    """
    axis, *names = sheet.columns
    columns: dict[str, dict[str, str]] = {}
    for name in names:
        run, _, metric = name.rpartition(_PANEL_SEPARATOR)
        if not name.endswith(_PANEL_BOUNDS) and metric != _STEP_COUNTER:
            columns.setdefault(run, {})[metric] = name
    rows: list[Row] = []
    axis_values = sheet.column_texts(sheet.columns[axis])
    for run, metrics in columns.items():
        texts = (sheet.column_texts(sheet.columns[name]) for name in metrics.values())
        for axis_value, *values in zip(axis_values, *texts, strict=True):
            if any(values):
                rows.append({RUN: run, axis: axis_value, **dict(zip(metrics, values, strict=True))})
    return Sheet.from_rows(PANEL_NAME, rows)


def _with_points(sheet: Sheet, log: LogFile) -> Sheet:
    """Decimal points instead of decimal commas, column by column."""
    decimal = [name for name, column in sheet.columns.items() if has_decimal_commas(column.fields)]
    for name in decimal:
        column = sheet.columns[name]
        points = [text.replace(",", ".") for text in column.fields]
        sheet |= {name: Column(column.rows, points)}
    if decimal:
        log.tell(f"{log.path}: decimal commas in {some(decimal)}, read as points")
    return sheet


def has_decimal_commas(fields: Iterable[str]) -> bool:
    """Whether all are numbers without a point, or empty, and a comma
    of one cannot be but decimal.
    """
    numbers = [text.strip() for text in fields if text.strip()]
    if not any("," in text for text in numbers) or not all(
        _WITHOUT_A_POINT.fullmatch(text) for text in numbers
    ):
        return False
    return any("," in text and not _THOUSANDS.fullmatch(text) for text in numbers)
