"""A CSV or JSONL file that is read whole: the history of every run in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from rollcast.config.curve_columns import (
    COMPUTE_NAMES,
    PASS_RATE_NAMES,
    STANDARD_ERROR_NAMES,
    TRUNCATION_NAMES,
    find_column,
)
from rollcast.config.errors import UserError
from rollcast.config.services import CurveFile
from rollcast.curves.curve_row import Row, field, meets
from rollcast.curves.evaluations import known
from rollcast.curves.left_out import Tell, left_out
from rollcast.curves.row_evaluations import RowEvaluations
from rollcast.curves.rows import read_rows
from rollcast.curves.run_history import RunHistory
from rollcast.runfolder.survival import surviving
from rollcast.telemetry.names import is_own_curve


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


@dataclass(frozen=True)
class Table:
    """A file's rows as far as they were asked for, and the columns that hold the curve."""

    path: Path
    rows: list[Row]
    columns: Columns
    """All found."""

    def runs(self) -> list[str]:
        """Those that have a pass rate, in the order of the file; one without a name where there is no such column."""
        pass_rate = self.columns.pass_rate or ""
        names = (run_of(row) for row in self.rows if row.get(pass_rate) not in (None, ""))
        return list(dict.fromkeys(names)) or [""]

    def history(self, rows: list[Row], name: str, tell: Tell) -> RunHistory:
        """Of one run's rows. Raises UserError where they are of several measures, or a column holds no number."""
        found = RowEvaluations(
            CurveFile.model_construct(
                run=name,
                path=self.path,
                compute=self.columns.compute,
                pass_rate=self.columns.pass_rate,
                standard_error=self.columns.standard_error,
                truncation_ratio=self.columns.truncation_ratio,
                scale=self.columns.scale,
            )
        )
        try:
            taken = [found.take(row, number, ()) for number, row in enumerate(rows)]
        except UserError as error:
            raise UserError(f"{self.path}: {error}") from None
        if (mixed := found.mixture.complaint(self.columns.compute or "", "--where")) is not None:
            raise UserError(f"{self.path}: {mixed}")
        evaluations = [item for item in taken if item is not None]
        finite = [known(item) for item in evaluations if math.isfinite(item.compute) and math.isfinite(item.pass_rate)]
        kept = surviving(finite, found.starts())
        twice = len(finite) - len({item.key for item in finite})
        if twice:
            tell(left_out(self.path, twice, "evaluation", "second readings of a step"))
        if lost := len(finite) - twice - len(kept):
            tell(left_out(self.path, lost, "evaluation", "of steps that were made again after a restart"))
        ordered = tuple(sorted(kept, key=lambda item: (item.compute, item.step)))
        return RunHistory(name, ordered, len(evaluations) - len(finite))


def read_table(path: Path, columns: Columns, run: str | None, tell: Tell) -> Table:
    """Raises UserError: what cannot be read, or which column is missing, and what would help."""
    rows = read_rows(path, tell)
    for condition in columns.where:
        if "=" not in condition:
            raise UserError(f"--where {condition}: needs COLUMN=VALUE")
    rows = [row for row in rows if meets(row, columns.where)]
    if run is not None:
        rows = [row for row in rows if run_of(row) == run]
    if not any(condition.startswith("dataset=") for condition in columns.where):
        rows = [row for row in rows if is_own_curve(str(field(row, "dataset") or ""))]
    if not rows:
        raise UserError(f"{path}: no row is left; check --where, --run and the file")
    names = list(dict.fromkeys(name for row in rows for name in row))
    found = replace(
        columns,
        compute=_column(path, names, columns.compute, COMPUTE_NAMES, "--compute"),
        pass_rate=_column(path, names, columns.pass_rate, PASS_RATE_NAMES, "--pass-rate"),
        standard_error=_optional(path, names, columns.standard_error, STANDARD_ERROR_NAMES, "--standard-error"),
        truncation_ratio=_optional(path, names, columns.truncation_ratio, TRUNCATION_NAMES, "--truncation-ratio"),
    )
    return Table(path, rows, found)


def run_of(row: Row) -> str:
    """The name of the row's run; empty where no column tells it."""
    return str(field(row, "run") or "")


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
