"""A curve from a CSV or JSONL file, from a run's evaluations.jsonl, or from a Prometheus server."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.scaling.curve import Curve
    from rollcast.scaling.posterior import FitOptions

MAX_FILE_BYTES = 64 << 20
COMPUTE_NAMES = ("compute_device_hours", "compute", "device_hours", "gpu_hours", "gpu_hours_excl_eval")
PASS_RATE_NAMES = ("pass_rate", "accuracy", "score", "eval_acc")
STANDARD_ERROR_NAMES = ("standard_error", "stderr")


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None = found by their usual names."""

    compute: str | None = None
    pass_rate: str | None = None
    standard_error: str | None = None
    where: tuple[str, ...] = ()
    """Conditions COLUMN=VALUE that a row must meet."""


def read_curve(source: str, columns: Columns, run: str | None) -> Curve:
    """The curve of a file or of a Prometheus address.

    Raises UserError: one sentence on what cannot be read and what would help.
    """
    from rollcast.scaling.curve import Curve

    if source.startswith(("http://", "https://")):
        return _from_prometheus(source, run)
    path = Path(source)
    rows = _rows(path)
    for condition in columns.where:
        name, found, value = condition.partition("=")
        if not found:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
        rows = [row for row in rows if str(row.get(name, "")) == value]
    if run is not None:
        rows = [row for row in rows if str(row.get("run", "")) == run]
    if not rows:
        raise UserError(f"{path}: no row is left; check --where, --run and the file")
    names = list(rows[0])
    compute = _column(path, names, columns.compute, COMPUTE_NAMES, "--compute")
    pass_rate = _column(path, names, columns.pass_rate, PASS_RATE_NAMES, "--pass-rate")
    error = columns.standard_error or next((name for name in STANDARD_ERROR_NAMES if name in names), None)
    used = [row for row in rows if row.get(pass_rate) not in (None, "")]
    try:
        return Curve.from_points(
            [_number(path, row, compute) for row in used],
            [_number(path, row, pass_rate) for row in used],
            None if error is None else [_number(path, row, error) for row in used],
            name=path.stem if run is None else run,
        )
    except ValueError as wrong:
        raise wrong if isinstance(wrong, UserError) else UserError(f"{path}: {wrong}") from None


def fit_options(initial: float | None, exclude_before: float | None) -> FitOptions:
    """Raises ValueError where a value is out of bounds."""
    from rollcast.scaling.posterior import FitOptions

    return FitOptions(
        initial="measured" if initial is None else initial,
        exclude_before="auto" if exclude_before is None else exclude_before,
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB; give the evaluations only")
        text = path.read_text()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give a CSV or JSONL file") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is no text file; give a CSV or JSONL file") from None
    if text.lstrip().startswith("{"):
        return list(_json_rows(path, text.splitlines()))
    try:
        return list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise UserError(f"{path}: is no CSV ({error}); mend it or give a JSONL file") from None


def _json_rows(path: Path, lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}: line {number} is no JSON object; mend or remove it")
        yield row


def _column(path: Path, names: list[str], given: str | None, usual: tuple[str, ...], option: str) -> str:
    found = given if given is not None else next((name for name in usual if name in names), None)
    if found is None or found not in names:
        missing = f"no column {given!r}" if given is not None else f"none of the columns {', '.join(usual)}"
        raise UserError(f"{path}: {missing}; name one of {', '.join(names)} with {option}")
    return found


def _number(path: Path, row: dict[str, Any], column: str) -> float:
    value = row.get(column)
    if value in (None, ""):
        return math.nan
    try:
        return float(str(value))
    except ValueError:
        raise UserError(f"{path}: column {column} holds {value!r}, needs a number") from None


def _from_prometheus(url: str, run: str | None) -> Curve:
    import numpy as np

    from rollcast.forecaster.evaluations import EvaluationLog, curve_of
    from rollcast.forecaster.sources import PrometheusQueries
    from rollcast.telemetry.prometheus_reader import SourceAway

    queries = PrometheusQueries(url)
    try:
        reading = queries.read()
    except SourceAway as error:
        raise UserError(f"{url}: {error}; give the address of a Prometheus server") from None
    finally:
        queries.close()
    runs = sorted({item.run for item in reading.evaluations})
    if run is None and len(runs) == 1:
        run = runs[0]
    if run not in runs:
        raise UserError(f"{url}: holds evaluations of {', '.join(runs) or 'no run'}; name one with --run")
    log = EvaluationLog(starts=reading.starts.get(run, {}))
    for item in reading.evaluations:
        if item.run == run:
            log.add(item)
    kept = log.surviving()
    return curve_of(kept, np.array([item.compute for item in kept]), run)
