"""Rows of a CSV or JSONL file, by column: read whole, what is malformed left out and told."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.curve_row import Row, delimiter_of, some
from rollcast.curves.left_out import Tell, counted, left_out

MAX_FILE_BYTES = 64 << 20
_WITHOUT_A_POINT = re.compile(r"[-+]?(\d+|\d*,\d+)(e[-+]?\d+)?|nan", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def read_rows(path: Path, tell: Tell) -> list[Row]:
    """Every row. Lines that are none are counted and told.

    Raises UserError where the file cannot be read, or is of another kind.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise UserError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; give the evaluations only")
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a CSV or JSONL file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is no text file; give a CSV or JSONL file") from None
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")  # splitlines also splits where JSON writes U+2028
    if text.lstrip().startswith("{"):
        return _json_rows(path, lines, tell)
    if text.lstrip().startswith("["):
        raise UserError(f"{path}: is a JSON list; write one object a line (JSONL), or CSV")
    try:
        return _csv_rows(path, lines, tell)
    except csv.Error as error:
        raise UserError(f"{path}: is no CSV ({error}); mend it or give a JSONL file") from None


def _csv_rows(path: Path, lines: Sequence[str], tell: Tell) -> list[Row]:
    """What stands right of the last heading is left out; what a short row lacks is empty. Both are told."""
    delimiter = delimiter_of(lines[0]) if lines else ","
    reader = csv.reader(lines, delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    found = [fields for fields in reader if fields]
    if short := sum(len(fields) < len(header) for fields in found):
        tell(f"{path}: {counted(short, 'line')} with fewer fields than columns, {len(header)}; the rest is empty")
    if long := sum(any(fields[len(header) :]) for fields in found):
        tell(f"{path}: {counted(long, 'line')} with more fields than columns, {len(header)}; the rest is left out")
    rows: list[Row] = [dict(zip(header, fields + [""] * len(header), strict=False)) for fields in found]
    names = dict.fromkeys(header)
    decimal = [name for name in names if delimiter != "," and has_decimal_commas(row[name] for row in rows)]
    if decimal:
        tell(f"{path}: decimal commas in {some(decimal)}, read as points")
        for row in rows:
            row.update({name: row[name].replace(",", ".") for name in decimal})
    return rows


def has_decimal_commas(column: Iterable[str]) -> bool:
    """Whether all are numbers without a point, or empty, and a comma of one cannot be but decimal."""
    numbers = [text.strip() for text in column if text.strip()]
    if not all(_WITHOUT_A_POINT.fullmatch(text) for text in numbers):
        return False
    return any("," in text and not _THOUSANDS.fullmatch(text) for text in numbers)


def _json_rows(path: Path, lines: Sequence[str], tell: Tell) -> list[Row]:
    rows, malformed = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        else:
            malformed.append(number)
    if malformed:
        others = ", nor are the others" if len(malformed) > 1 else ""
        tell(left_out(path, len(malformed), "line", f"line {malformed[0]} is no JSON object{others}"))
    return rows
