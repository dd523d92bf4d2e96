"""CSV with commas, semicolons or tabs.

Fields right of the last heading are left out; fields that a row lacks are empty.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from io import StringIO
from itertools import chain

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_COLUMNS, MAX_ROW_CHARS, refuse_above, shown
from rollcast.curves.columns import some
from rollcast.curves.formats import wandb_csv
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.left_out import counted
from rollcast.curves.sheet import Sheet, in_chunks

NAMES = {",": "CSV", ";": "CSV with semicolons", "\t": "TSV"}
ENDINGS = (".csv", ".tsv")
DELIMITER_LINES = {"sep=,", "sep=;", "sep=\t", "sep="}
"""The line in which Excel names the delimiter."""
_WITHOUT_A_POINT = re.compile(r"[-+]?(\d+|\d*,\d+)(e[-+]?\d+)?\s?%?|nan", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}\s?%?")


def recognises(log: LogFile) -> bool:
    """Whether the file is called a table, and is neither JSON nor binary. UTF-16, which has zero bytes, comes last."""
    return log.path.suffix.casefold() in ENDINGS and b"\x00" not in log.content and not log.is_json


def read(log: LogFile) -> Sheet:
    """Raises UserError: it is not CSV, or two columns have one name."""
    lines = StringIO(log.ended_text, newline="\n")
    first = next((line for line in lines if line.strip()), "")
    if first[:9].strip().casefold() in DELIMITER_LINES:
        first = next(lines, first)
    refuse_above(max(map(first.count, NAMES)), MAX_COLUMNS, "columns")
    delimiter = max(NAMES, key=lambda each: _num_columns(first, each))
    try:
        sheet = _sheet_of(_rows(chain([first], lines), delimiter), NAMES[delimiter], log)
    except csv.Error as error:
        raise UserError(f"{log.path}: is not CSV ({error}); fix it or give a JSONL file") from None
    if wandb_csv.is_panel(sheet.names):
        return wandb_csv.by_run(sheet)
    return sheet if delimiter == "," else _with_points(sheet, log)


def _num_columns(header: str, delimiter: str) -> int:
    try:
        return len(next(csv.reader([header], delimiter=delimiter), []))
    except csv.Error:  # one field, as long as a wide header
        return 0


def _rows(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """The fields of each row. Quotes may join any number of lines into one row, so its length is bounded."""
    row_chars = 0

    def bounded() -> Iterator[str]:
        nonlocal row_chars
        for line in lines:
            row_chars += len(line)
            if row_chars > MAX_ROW_CHARS:  # a call for each line would take a tenth of the time
                refuse_above(row_chars, MAX_ROW_CHARS, "characters in one row")
            yield line

    for fields in csv.reader(bounded(), delimiter=delimiter):
        row_chars = 0
        yield fields


def _sheet_of(rows: Iterator[list[str]], format: str, log: LogFile) -> Sheet:
    """The rows below the header, each of as many fields as there are columns; empty lines are not rows."""
    header = heading(next(rows, []), log)
    width = len(header)
    num_short = num_long = 0

    def fitted(chunk: list[list[str]]) -> list[list[str]]:
        nonlocal num_short, num_long
        if set(map(len, chunk)) == {width}:
            return chunk
        num_short += sum(0 < len(fields) < width for fields in chunk)
        num_long += sum(any(fields[width:]) for fields in chunk)
        return [fields[:width] + [""] * (width - len(fields)) for fields in chunk if fields]

    if wandb_csv.is_history(header):
        format = wandb_csv.HISTORY_NAME
    sheet = Sheet.of_table(format, header, map(fitted, in_chunks(rows)))
    if num_short:
        log.tell(f"{log.path}: {counted(num_short, 'line')} with fewer fields than columns, {width}; the rest is empty")
    if num_long:
        log.tell(
            f"{log.path}: {counted(num_long, 'line')} with more fields than columns, {width}; the rest is left out"
        )
    return sheet


def heading(fields: list[str], log: LogFile) -> list[str]:
    """A header's names without the spaces around them; a column without a name is called by its number.

    Raises UserError: two columns have one name, and either could be meant.
    """
    refuse_above(len(fields), MAX_COLUMNS, "columns")
    names = [name.strip() or f"column {number}" for number, name in enumerate(fields, start=1)]
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise UserError(f"{log.path}: two columns are called {shown(twice)!r}; rename one of them")
    return names


def _with_points(sheet: Sheet, log: LogFile) -> Sheet:
    """Decimal points instead of decimal commas, column by column."""
    decimal = [name for name in sheet.names if has_decimal_commas(sheet.fields(name))]
    for name in decimal:
        sheet = sheet.with_column(name, [text.replace(",", ".") for text in sheet.cells(name)])
    if decimal:
        log.tell(f"{log.path}: decimal commas in {some(decimal)}, read as points")
    return sheet


def has_decimal_commas(fields: Iterable[str]) -> bool:
    """Whether all are numbers without a point, or empty, and a comma of one cannot be but decimal."""
    numbers = [text.strip() for text in fields if text.strip()]
    if not any("," in text for text in numbers) or not all(_WITHOUT_A_POINT.fullmatch(text) for text in numbers):
        return False
    return any("," in text and not _THOUSANDS.fullmatch(text) for text in numbers)
