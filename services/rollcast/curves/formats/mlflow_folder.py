"""MLflow: the folder of its file store (mlruns), or of a run in it. Each metric of a run is a file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_ROWS, refuse_above
from rollcast.curves.formats.log_file import MAX_FILE_BYTES, LogFile, as_text, read_bytes
from rollcast.curves.formats.mlflow_metric import TIME, values_in
from rollcast.curves.left_out import Tell
from rollcast.curves.sheet import RUN, Row, Sheet

NAME = "MLflow folder"
METRICS = "metrics"
MAX_FILES = 5_000
_META = "meta.yaml"
_RUN_NAME = Path("tags") / "mlflow.runName"

Value = tuple[str, str, int, int, object]
"""Run, metric, step, milliseconds, value."""


def recognises(log: LogFile) -> bool:
    """A file store, an experiment or a run: run folders with metrics are at most two levels below it."""
    return log.path.is_dir() and next(_run_folders(log.path), None) is not None


def read(log: LogFile) -> Sheet:
    """Every run in a file store. Raises UserError: a file cannot be read. Raises TooMuch."""
    return Sheet.of_rows(NAME, _rows(log.path, log.tell))


def _rows(folder: Path, tell: Tell) -> list[Row]:
    values: list[Value] = []
    called: dict[str, str] = {}
    left = MAX_FILE_BYTES
    for run in _run_folders(folder):
        name = run / _RUN_NAME
        called[run.name] = as_text(read_bytes(name, 4096), name, tell).strip() if name.is_file() else run.name
        files = list(islice((run / METRICS).rglob("*"), MAX_FILES + 1))
        if len(files) > MAX_FILES:
            raise UserError(f"{run}: holds more than {MAX_FILES:,} metrics; give the file of one")
        for file in sorted(files):
            if file.is_file():
                key = file.relative_to(run / METRICS).as_posix()
                content = read_bytes(file, left)
                left -= len(content)
                text = as_text(content, file, tell)
                values += [(run.name, key, step, at, value) for at, value, step in values_in(text)]
                refuse_above(len(values), MAX_ROWS, "values")
    values.sort(key=lambda item: item[3])
    names = distinct(called)
    return merged((names[run], *rest) for run, *rest in values)  # type: ignore[misc]


def _run_folders(folder: Path) -> Iterator[Path]:
    """The folder itself, its folders, and their folders, as far as they are runs. Their number is bounded."""
    seen = 0
    for pattern in ("", "*/", "*/*/"):
        for metrics in sorted(folder.glob(pattern + METRICS)) if pattern else [folder / METRICS]:
            seen += 1
            if seen > MAX_FILES:
                return
            if metrics.is_dir() and (metrics.parent / _META).is_file():
                yield metrics.parent


def distinct(names: dict[str, str]) -> dict[str, str]:
    """Id -> name, or the id again if two runs have one name."""
    taken = Counter(names.values())
    return {run: name if name and taken[name] == 1 else run for run, name in names.items()}


def merged(values: Iterable[Value]) -> list[Row]:
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
