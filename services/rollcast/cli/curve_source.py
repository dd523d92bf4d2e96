"""Curves from a CSV or JSONL file, from a run's evaluations.jsonl, or from a Prometheus server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollcast.cli.curve_rows import read_rows, surviving_evaluations, tell_left_out
from rollcast.config.curve_columns import (
    COMPUTE_NAMES,
    PASS_RATE_NAMES,
    STANDARD_ERROR_NAMES,
    TRUNCATION_NAMES,
    find_column,
)
from rollcast.config.errors import UserError
from rollcast.curves.curve_row import Mixture, Row, field, meets, real_number, some
from rollcast.curves.natural_order import natural
from rollcast.telemetry.names import is_own_curve

if TYPE_CHECKING:
    from rollcast.config.services import CurveQueries
    from rollcast.curves.evaluations import EvaluationLog
    from rollcast.scaling.curve import Curve
    from rollcast.scaling.options import FitOptions


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None = found by their usual names. Of a Prometheus: expressions of one series each."""

    compute: str | None = None
    pass_rate: str | None = None
    standard_error: str | None = None
    truncation_ratio: str | None = None
    where: tuple[str, ...] = ()
    """Conditions COLUMN=VALUE that a row must meet."""
    scale: float = 1.0
    """Times the pass rates and their standard errors."""


def read_curve(source: str, columns: Columns, run: str | None) -> Curve:
    """The curve of a file or of a Prometheus address.

    Raises UserError: one sentence on what cannot be read, or that there are several runs, and what would help.
    """
    if source.startswith(("http://", "https://")):
        found = _evaluations(source, columns, run)
        runs = sorted(found, key=natural)
        name = run if run is not None else runs[0] if len(runs) == 1 else None
        if name not in found:
            raise UserError(f"{source}: holds evaluations of {', '.join(runs) or 'no run'}; name one with --run")
        return _curve_of_log(source, name, found[name])
    table = _read_table(Path(source), columns, run)
    runs = table.runs()
    if len(runs) > 1:
        raise UserError(f"{source}: holds {len(runs)} runs; choose one of {some(runs)} with --where run=NAME")
    return table.curve(table.rows, Path(source).stem if run is None else run)


def read_curves(source: str, columns: Columns) -> list[Curve]:
    """The curve of every run in a file, told by its column `run`, or in a Prometheus; several have their runs' names.

    Raises UserError: one sentence on what cannot be read and what would help.
    """
    if source.startswith(("http://", "https://")):
        found = _evaluations(source, columns, None)
        if not found:
            raise UserError(f"{source}: holds evaluations of no run; check the address")
        return [_curve_of_log(source, run, found[run]) for run in sorted(found, key=natural)]
    table = _read_table(Path(source), columns, None)
    runs = table.runs()
    if len(runs) == 1:
        return [table.curve(table.rows, Path(source).stem)]
    return [table.curve([row for row in table.rows if _run(row) == run], run or Path(source).stem) for run in runs]


@dataclass(frozen=True)
class _Table:
    """A file's rows as far as they were asked for, and the columns that hold the curve."""

    path: Path
    rows: list[Row]
    compute: str
    pass_rate: str
    standard_error: str | None
    truncation_ratio: str | None
    scale: float

    def runs(self) -> list[str]:
        """Those that have a pass rate, in the order of the file; one without a name where there is no such column."""
        names = (_run(row) for row in self.rows if row.get(self.pass_rate) not in (None, ""))
        return list(dict.fromkeys(names)) or [""]

    def curve(self, rows: list[Row], name: str) -> Curve:
        """The curve of one run's rows. Raises UserError where they make none."""
        from rollcast.scaling.curve import Curve

        path = self.path
        used = [row for row in rows if row.get(self.pass_rate) not in (None, "")]
        _refuse_mixture(path, used, self.compute)
        used = surviving_evaluations(path, rows, self.compute, self.pass_rate)

        def numbers(column: str, scale: float = 1.0) -> list[float]:
            return [scale * _number(path, row, column) for row in used]

        try:
            return Curve.from_points(
                numbers(self.compute),
                numbers(self.pass_rate, self.scale),
                None if self.standard_error is None else numbers(self.standard_error, self.scale),
                name=name,
                truncation_ratio=None if self.truncation_ratio is None else numbers(self.truncation_ratio),
            )
        except ValueError as wrong:
            raise wrong if isinstance(wrong, UserError) else UserError(f"{path}: {wrong}") from None


def _read_table(path: Path, columns: Columns, run: str | None) -> _Table:
    rows = read_rows(path)
    for condition in columns.where:
        if "=" not in condition:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
    rows = [row for row in rows if meets(row, columns.where)]
    if run is not None:
        rows = [row for row in rows if _run(row) == run]
    if not any(condition.startswith("dataset=") for condition in columns.where):
        rows = [row for row in rows if is_own_curve(str(field(row, "dataset") or ""))]
    if not rows:
        raise UserError(f"{path}: no row is left; check --where, --run and the file")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _Table(
        path=path,
        rows=rows,
        compute=_column(path, names, columns.compute, COMPUTE_NAMES, "--compute"),
        pass_rate=_column(path, names, columns.pass_rate, PASS_RATE_NAMES, "--pass-rate"),
        standard_error=_optional(path, names, columns.standard_error, STANDARD_ERROR_NAMES, "--standard-error"),
        truncation_ratio=_optional(path, names, columns.truncation_ratio, TRUNCATION_NAMES, "--truncation-ratio"),
        scale=columns.scale,
    )


def fit_options(initial: float | None, exclude_before: float | None) -> FitOptions:
    """Raises ValueError where a value is out of bounds."""
    from rollcast.scaling.options import FitOptions

    return FitOptions(
        initial="measured" if initial is None else initial,
        exclude_before="auto" if exclude_before is None else exclude_before,
    )


def _column(path: Path, names: list[str], given: str | None, usual: tuple[str, ...], option: str) -> str:
    found = find_column(names, usual if given is None else (given,))
    if found is None:
        missing = f"no column {given!r}" if given is not None else f"none of the columns {', '.join(usual)}"
        raise UserError(f"{path}: {missing}; name one of {', '.join(names)} with {option}")
    return found


def _optional(path: Path, names: list[str], given: str | None, usual: tuple[str, ...], option: str) -> str | None:
    if given is None and find_column(names, usual) is None:
        return None
    return _column(path, names, given, usual, option)


def _refuse_mixture(path: Path, rows: list[Row], compute: str) -> None:
    """Several measures of a run are no curve; forecast as one they would look like one."""
    mixture = Mixture()
    for row in rows:
        mixture.add(row, str(row.get(compute, "")))
    if (mixed := mixture.complaint(compute, "--where")) is not None:
        raise UserError(f"{path}: {mixed}")


def _queries(columns: Columns, run: str | None) -> tuple[CurveQueries, ...]:
    """A run of another framework, where expressions are given; none: one of Rollcast's own."""
    from pydantic import ValidationError

    from rollcast.config.services import CurveQueries

    if columns.where:
        raise UserError(
            f"--where {columns.where[0]}: selects rows of a file; put matchers into the expressions instead"
        )
    if columns.scale != 1:
        raise UserError(f"--scale {columns.scale:g}: is for files; multiply in the expression --pass-rate instead")
    if columns.pass_rate is None or columns.compute is None:
        if columns != Columns():
            raise UserError("--compute, --pass-rate: of a Prometheus give both, each an expression of one series")
        return ()
    try:
        return (
            CurveQueries(
                run=run or "curve",
                pass_rate=columns.pass_rate,
                compute=columns.compute,
                standard_error=columns.standard_error,
                truncation_ratio=columns.truncation_ratio,
            ),
        )
    except ValidationError:
        raise UserError(f"--run {run}: is no name for a run; leave '/' out, and write 200 characters at most") from None


def _run(row: Row) -> str:
    return str(field(row, "run") or "")


def _number(path: Path, row: Row, column: str) -> float:
    value = row.get(column)
    if value in (None, ""):
        return math.nan
    try:
        return real_number(value, column)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _evaluations(url: str, columns: Columns, run: str | None) -> dict[str, EvaluationLog]:
    """By run, what a Prometheus knows. Raises UserError."""
    from rollcast.curves.evaluations import MAX_EVALUATIONS, EvaluationLog
    from rollcast.curves.sources import PrometheusQueries
    from rollcast.telemetry.prometheus_reader import SourceAway

    foreign = _queries(columns, run)
    queries = PrometheusQueries(url, curves=foreign)
    try:
        reading = queries.read()
    except SourceAway as error:
        remedy = "give the address of a Prometheus server" + (
            ", and expressions that it understands" if foreign else ""
        )
        raise UserError(f"{url}: {error}; {remedy}") from None
    finally:
        queries.close()
    wanted = {curve.run for curve in foreign}
    found: dict[str, EvaluationLog] = {}
    refused = 0
    for item in reading.evaluations:
        if (wanted and item.run not in wanted) or not is_own_curve(item.dataset):
            continue
        log = found.setdefault(item.run, EvaluationLog(starts=reading.starts.get(item.run, {})))
        try:
            log.add(item)
        except OverflowError:
            refused += 1
    if wanted and not found:
        raise UserError(f"{url}: --pass-rate and --compute select no evaluation; check the expressions")
    if refused:
        tell_left_out(url, refused, "evaluation", f"beyond {MAX_EVALUATIONS:,} of a run")
    if malformed := reading.skipped["out_of_bounds"]:
        tell_left_out(url, malformed, "evaluation", "a value of which is out of bounds")
    return found


def _curve_of_log(url: str, run: str, log: EvaluationLog) -> Curve:
    import numpy as np

    from rollcast.curves.evaluations import curve_of

    kept = log.surviving()
    try:
        return curve_of(kept, np.array([item.compute for item in kept]), run)
    except ValueError as error:
        raise UserError(f"{url}: {error}") from None
