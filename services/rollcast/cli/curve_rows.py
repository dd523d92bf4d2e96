"""Rows of a CSV or JSONL file, by column: read whole, what is malformed or was overtaken left out and told."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from rollcast.cli.report import counted
from rollcast.config.curve_columns import STEP_NAMES, find_column
from rollcast.config.errors import UserError
from rollcast.curves.curve_row import Restarts, Row, delimiter_of, field, some, whole_number

MAX_FILE_BYTES = 64 << 20
_WITHOUT_A_POINT = re.compile(r"[-+]?(\d+|\d*,\d+)(e[-+]?\d+)?|nan", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")


def read_rows(path: Path) -> list[Row]:
    """Every row. A line that is none is counted on standard error.

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
    if text.lstrip().startswith("{"):
        return _json_rows(path, text.splitlines())
    if text.lstrip().startswith("["):
        raise UserError(f"{path}: is a JSON list; write one object a line (JSONL), or CSV")
    try:
        return _csv_rows(path, text.splitlines())
    except csv.Error as error:
        raise UserError(f"{path}: is no CSV ({error}); mend it or give a JSONL file") from None


def surviving_evaluations(path: Path, rows: list[Row], compute: str, pass_rate: str) -> list[Row]:
    """The rows with a pass rate, without those of steps that were lost and made again after a restart.

    `rows` of one run, in the order of writing, those of training too. A restart is told by the column `incarnation`, or
    else by a step that goes back, or by one that is evaluated again at another compute. What is left out is counted on
    standard error.
    """
    from rollcast.curves.evaluations import last_surviving_steps

    column = find_column(dict.fromkeys(name for row in rows for name in row), STEP_NAMES)
    entries = [
        _Entry(
            row=row,
            step=None if column is None else whole_number(row.get(column)),
            compute=str(row.get(compute, "")),
            is_evaluation=row.get(pass_rate) not in (None, ""),
        )
        for row in rows
    ]
    given = [whole_number(field(row, "incarnation")) for row in rows]
    restarts = Restarts()
    if any(number is not None for number in given):
        incarnations = [number or 0 for number in given]
    else:
        incarnations = [
            restarts.incarnation(entry.step, entry.compute if entry.is_evaluation else None) for entry in entries
        ]
    first: dict[int, int] = {}
    for entry, incarnation in zip(entries, incarnations, strict=True):
        if entry.step is not None:
            first[incarnation] = min(entry.step, first.get(incarnation, entry.step))
    last = last_surviving_steps(first, restarts.starts())
    evaluations = [pair for pair in zip(entries, incarnations, strict=True) if pair[0].is_evaluation]
    kept = [entry.row for entry, number in evaluations if entry.step is None or entry.step <= last[number]]
    if lost := len(evaluations) - len(kept):
        tell_left_out(path, lost, "evaluation", "of steps that were made again after a restart")
    return kept


@dataclass(frozen=True, slots=True)
class _Entry:
    row: Row
    step: int | None
    compute: str
    is_evaluation: bool


def tell_left_out(path: Path | str, count: int, what: str, why: str) -> None:
    """One line on standard error. `what`: one of those that are left out."""
    typer.echo(f"{path}: {counted(count, what)} left out, {why}", err=True)


def _csv_rows(path: Path, lines: Sequence[str]) -> list[Row]:
    """What stands right of the last heading is left out; what a short row lacks is empty. Both are told."""
    delimiter = delimiter_of(lines[0]) if lines else ","
    reader = csv.reader(lines, delimiter=delimiter)
    header = [name.strip() for name in next(reader, [])]
    found = [fields for fields in reader if fields]
    if short := sum(len(fields) < len(header) for fields in found):
        typer.echo(
            f"{path}: {counted(short, 'line')} with fewer fields than columns, {len(header)}; the rest is empty",
            err=True,
        )
    if long := sum(any(fields[len(header) :]) for fields in found):
        typer.echo(
            f"{path}: {counted(long, 'line')} with more fields than columns, {len(header)}; the rest is left out",
            err=True,
        )
    rows: list[Row] = [dict(zip(header, fields + [""] * len(header), strict=False)) for fields in found]
    names = dict.fromkeys(header)
    decimal = [name for name in names if delimiter != "," and has_decimal_commas(row[name] for row in rows)]
    if decimal:
        typer.echo(f"{path}: decimal commas in {some(decimal)}, read as points", err=True)
        for row in rows:
            row.update({name: row[name].replace(",", ".") for name in decimal})
    return rows


def has_decimal_commas(column: Iterable[str]) -> bool:
    """Whether all are numbers without a point, or empty, and a comma of one cannot be but decimal."""
    numbers = [text.strip() for text in column if text.strip()]
    if not all(_WITHOUT_A_POINT.fullmatch(text) for text in numbers):
        return False
    return any("," in text and not _THOUSANDS.fullmatch(text) for text in numbers)


def _json_rows(path: Path, lines: Sequence[str]) -> list[Row]:
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
        tell_left_out(path, len(malformed), "line", f"line {malformed[0]} is no JSON object{others}")
    return rows
