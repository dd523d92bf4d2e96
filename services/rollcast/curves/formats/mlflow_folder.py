"""MLflow: the folder of its file store (mlruns), of a run in it, or the file of one metric of a
run.

Such a file has the name of the metric, and a line `timestamp value step` for each value, in
milliseconds.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.formats.log_file import MAX_FILE_BYTES, LogFile
from rollcast.curves.sheet import MAX_ROWS, RUN, Row, Sheet, refuse_above

NAME = "MLflow folder"
FILE_NAME = "MLflow metric file"
TIME = "timestamp"
METRICS = "metrics"
MAX_FILES = 5_000
_META = "meta.yaml"
_RUN_NAME = Path("tags") / "mlflow.runName"
_LINE = re.compile(r"(\d{10,16}) (\S{1,40}) (-?\d{1,15})")

Value = tuple[str, str, int, int, object]
"""Run, metric, step, milliseconds, value."""


def recognises(log: LogFile) -> bool:
    """A folder with runs at most two levels below it, or a file of such lines alone."""
    if log.path.is_dir():
        return next(_run_folders(log.path), None) is not None
    # The first line rules out most other formats, which may have a million lines.
    first, _, further_lines = log.text.rstrip("\n").partition("\n")
    return bool(_LINE.fullmatch(first)) and all(
        _LINE.fullmatch(line) for line in further_lines.splitlines()
    )


def read(log: LogFile) -> Sheet:
    """Every run in a file store, or one metric.

    Raises UserError: a file cannot be read. Raises TooMuch.
    """
    if not log.path.is_dir():
        values = _values_in(log.text)
        name = log.path.name
        rows = ({"step": step, TIME: at / 1000, name: value} for at, value, step in values)
        return Sheet.from_rows(FILE_NAME, rows)
    metric_values: list[Value] = []
    called: dict[str, str] = {}
    num_left = MAX_FILE_BYTES
    for run in _run_folders(log.path):
        called[run.name] = run.name
        if (name_file := run / _RUN_NAME).is_file():
            called[run.name] = LogFile(name_file, log.tell, max_bytes=4096).text.strip()
        files = list(islice((run / METRICS).rglob("*"), MAX_FILES + 1))
        if len(files) > MAX_FILES:
            raise UserError(f"{run}: holds more than {MAX_FILES:,} metrics; give the file of one")
        for file in sorted(file for file in files if file.is_file()):
            key = file.relative_to(run / METRICS).as_posix()
            metric = LogFile(file, log.tell, max_bytes=num_left)
            metric_values += [
                (run.name, key, step, at, value) for at, value, step in _values_in(metric.text)
            ]
            num_left -= len(metric.content)
            refuse_above(len(metric_values), MAX_ROWS, "values")
    # Each metric has a file of its own; in order of time their values are one log again.
    metric_values.sort(key=lambda item: item[3])
    names = distinct(called)
    return Sheet.from_rows(NAME, merge_rows((names[run], *rest) for run, *rest in metric_values))  # type: ignore[misc]


def _values_in(text: str) -> list[tuple[int, str, int]]:
    """Milliseconds, value and step of each line."""
    line_matches = (_LINE.fullmatch(line) for line in text.split("\n"))
    return [(int(line[1]), line[2], int(line[3])) for line in line_matches if line]


def _run_folders(folder: Path) -> Iterator[Path]:
    """The folder itself, its folders, and their folders, as far as they are runs.

    Their number is bounded.
    """
    num_folders = 0
    for pattern in ("", "*/", "*/*/"):
        for metrics in sorted(folder.glob(pattern + METRICS)) if pattern else [folder / METRICS]:
            num_folders += 1
            if num_folders > MAX_FILES:
                return
            if metrics.is_dir() and (metrics.parent / _META).is_file():
                yield metrics.parent


def distinct(names: dict[str, str]) -> dict[str, str]:
    """Id -> name, or the id again if two runs have one name."""
    name_counts = Counter(names.values())
    return {run: name if name and name_counts[name] == 1 else run for run, name in names.items()}


def merge_rows(values: Iterable[Value]) -> list[Row]:
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
