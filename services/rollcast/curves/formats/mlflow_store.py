"""MLflow: its SQLite store, the folder of its file store (mlruns), the folder of a run in it, or one metric's file.

A metric's file has a line `timestamp value step` for each value, the time in milliseconds.
"""

from __future__ import annotations

import re
import sqlite3
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.curve_row import Row
from rollcast.curves.formats.content import as_text, read_bytes
from rollcast.curves.formats.found import MAX_ROWS, RUN
from rollcast.curves.left_out import Tell

STORE_NAME = "MLflow store"
FOLDER_NAME = "MLflow folder"
METRIC_NAME = "MLflow metric file"
SQLITE_MARK = b"SQLite format 3\x00"
METRICS = "metrics"
TIME = "timestamp"
MAX_QUERY_SECONDS = 20.0
MAX_FILES = 5_000
_LINE = re.compile(r"(\d{10,16}) (\S{1,40}) (-?\d{1,15})")
_META = "meta.yaml"
_RUN_NAME = Path("tags") / "mlflow.runName"

Value = tuple[str, str, int, int, object]
"""Run, metric, step, milliseconds, value."""


def is_store(content: bytes) -> bool:
    return content.startswith(SQLITE_MARK)


def is_metric_file(text: str) -> bool:
    """Whether every line is a time, a value and a step."""
    first, _, others = text.rstrip("\n").partition("\n")  # which tells most others, a million lines perhaps
    return bool(_LINE.fullmatch(first)) and all(_LINE.fullmatch(line) for line in others.splitlines())


def is_folder(folder: Path) -> bool:
    """A file store, an experiment or a run: what has run folders with metrics within two levels."""
    return next(_run_folders(folder), None) is not None


def store_rows(path: Path) -> list[Row]:
    """Of every run in a SQLite store. Raises UserError where it is none of MLflow's."""
    deadline = time.monotonic() + MAX_QUERY_SECONDS
    # Quoted: after a # the address would end, and with it that the file is only read.
    address = f"file:{urllib.parse.quote(path.resolve().as_posix())}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            names, values = _read_store(connection, deadline)
    except sqlite3.Error as error:
        raise UserError(f"{path}: is no SQLite store of MLflow ({error}); give its mlflow.db") from None
    called = _distinct({run: str(names.get(run) or run) for run, *_ in values})
    return _merged((called[run], key, step, at, value) for run, key, step, at, value in values)


def _read_store(connection: sqlite3.Connection, deadline: float) -> tuple[dict[str, str | None], list[Value]]:
    """Names of runs, and values of the types that MLflow writes."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 100_000)
    names = dict(connection.execute("SELECT run_uuid, name FROM runs LIMIT 100000").fetchall())
    values = connection.execute(
        "SELECT run_uuid, key, step, timestamp, value FROM metrics WHERE NOT is_nan AND typeof(run_uuid) = 'text' "
        "AND typeof(key) = 'text' AND typeof(step) = 'integer' AND typeof(timestamp) = 'integer' "
        "ORDER BY timestamp LIMIT ?",
        (MAX_ROWS,),
    ).fetchall()
    return names, values


def folder_rows(folder: Path, tell: Tell) -> list[Row]:
    """Of every run in a file store. Raises UserError where a file cannot be read."""
    values: list[Value] = []
    called: dict[str, str] = {}
    for run in _run_folders(folder):
        name = run / _RUN_NAME
        called[run.name] = as_text(read_bytes(name, 4096), name, tell).strip() if name.is_file() else run.name
        for number, file in enumerate(sorted((run / METRICS).rglob("*"))):
            if number >= MAX_FILES:
                raise UserError(f"{run}: holds more than {MAX_FILES:,} metrics; give the file of one")
            if file.is_file():
                key = file.relative_to(run / METRICS).as_posix()
                text = as_text(read_bytes(file), file, tell)
                values += [(run.name, key, step, at, value) for at, value, step in _lines(text)]
    values.sort(key=lambda item: item[3])
    names = _distinct(called)
    return _merged((names[run], *rest) for run, *rest in values)  # type: ignore[misc]


def metric_rows(text: str, path: Path) -> list[Row]:
    """Of one metric, whose name the file bears."""
    return [{"step": step, TIME: at / 1000, path.name: value} for at, value, step in _lines(text)]


def _lines(text: str) -> list[tuple[int, str, int]]:
    found = (_LINE.fullmatch(line) for line in text.split("\n"))
    return [(int(line[1]), line[2], int(line[3])) for line in found if line]


def _run_folders(folder: Path) -> Iterator[Path]:
    """Bounded: a run is the folder itself, lies in it, or lies in a folder of it."""
    seen = 0
    for pattern in ("", "*/", "*/*/"):
        for metrics in sorted(folder.glob(pattern + METRICS)) if pattern else [folder / METRICS]:
            seen += 1
            if seen > MAX_FILES:
                return
            if metrics.is_dir() and (metrics.parent / _META).is_file():
                yield metrics.parent


def _distinct(names: dict[str, str]) -> dict[str, str]:
    """Id -> name, or the id where two runs bear one name."""
    taken = list(names.values())
    return {run: name if name and taken.count(name) == 1 else run for run, name in names.items()}


def _merged(values: Iterable[Value]) -> list[Row]:
    """A row for each run and step; a metric that comes again at a step begins another one."""
    rows: list[Row] = []
    newest: dict[tuple[str, int], Row] = {}
    for run, key, step, at, value in values:
        row = newest.get((run, step))
        if row is None or key in row:
            row = newest[run, step] = {RUN: run, "step": step, TIME: at / 1000}
            rows.append(row)
        row[key] = value
    return rows
