"""A folder of real curves.

`index.csv` has a row for each curve: `name`, `source_repo`, `metric` and, if the end of the curve
sets the scale of its pass rates, any text under `scaled_by_own_range`; `task`, where several were
tried. `NAME.csv` holds the
readings: `x` (compute, ascending from 0 or more), `y` (pass rate) and, if it is known, `se`
(standard error of y). Other columns are not read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from rollcast.config.errors import UserError
from rollcast.scaling.law.curve import Array

INDEX = "index.csv"
MAX_FILE_BYTES = 8 * 2**20
"""Size of a file that is read at most: a row of 800 bytes for each of MAX_ROWS."""
MAX_ROWS = 10_000
"""Curves in the index, and readings in a curve, at most. The grid of the simple methods takes 0.3
GB for that many."""
MIN_STANDARD_ERROR = 1e-4
"""Pass rate: smaller standard errors are raised to it, because a reading of 0 or 1 is not exact."""


@dataclass(frozen=True, eq=False)
class CorpusCurve:
    """One run.

    Attributes:
        repository: origin of the run; one repository has one vote.
        metric: `heldout`, `train`, or another name; curves are compared within a metric.
        is_scaled_by_own_range: the end of the run sets the scale of y, so that a gain means
            nothing.
        x: (n,) compute as in the file.
        y: (n,) pass rates.
        standard_error: (n,) at least MIN_STANDARD_ERROR; nan = unknown.
        task: curves are one family within a repository, metric and task.
    """

    name: str
    repository: str
    metric: str
    is_scaled_by_own_range: bool
    x: Array
    y: Array
    standard_error: Array
    task: str = ""

    def __len__(self) -> int:
        return int(self.x.size)

    @property
    def shift(self) -> float:
        """Added to x before anything is fitted: a first reading at 0 is a reading like others, not
        a known start.
        """
        return 1.0 if self.x[0] <= 0.0 else 0.0

    @property
    def compute(self) -> Array:
        """(n,) x after the shift: positive."""
        return self.x + self.shift

    def known_errors(self, num_readings: int) -> Array | None:
        """Standard errors of the first readings; None if one of them is unknown."""
        errors = self.standard_error[:num_readings]
        return None if np.isnan(errors).any() else errors

    def beginning_as_csv(self, num_readings: int) -> str:
        """The first readings as CSV text with the columns step, pass_rate and, if all are known,
        standard_error.
        """
        columns = {"step": self.compute[:num_readings], "pass_rate": self.y[:num_readings]}
        errors = self.known_errors(num_readings)
        if errors is not None:
            columns["standard_error"] = errors
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
        return "\n".join(lines) + "\n"


def read_corpus(folder: Path) -> list[CorpusCurve]:
    """Every curve of the folder, in the order of the index.

    Raises:
        UserError: no index, a curve that is absent, or a value that is not a number in its range.
    """
    try:
        rows = list(_rows(folder / INDEX, ("name", "source_repo", "metric")))
    except UserError as error:
        raise UserError(f"{folder}: holds no curves: {error}") from None
    if not rows:
        raise UserError(f"{folder}: holds no curves: {INDEX} has no row; add one for each curve")
    return [_curve(folder, row) for row in rows]


def _curve(folder: Path, row: dict[str, str]) -> CorpusCurve:
    name = row["name"]
    if not name or Path(name).name != name:
        raise UserError(
            f"{folder / INDEX}: name {name!r} is not the name of a file; write NAME for NAME.csv"
        )
    path = folder / f"{name}.csv"
    lines = list(_rows(path, ("x", "y")))
    x = [_number(path, row_index, line, "x", math.inf) for row_index, line in enumerate(lines)]
    y = [_number(path, index, line, "y", 1.0) for index, line in enumerate(lines)]
    errors = [
        max(_number(path, index, line, "se", 1.0), MIN_STANDARD_ERROR)
        if line.get("se")
        else math.nan
        for index, line in enumerate(lines)
    ]
    if not lines or any(later <= earlier for earlier, later in pairwise(x)):
        raise UserError(
            f"{path}: x must ascend from reading to reading, and there must be one; sort the rows "
            "by x"
        )
    return CorpusCurve(
        name=name,
        repository=row["source_repo"],
        metric=row["metric"],
        is_scaled_by_own_range=bool(row.get("scaled_by_own_range")),
        x=np.array(x),
        y=np.array(y),
        standard_error=np.array(errors),
        task=row.get("task", ""),
    )


def _rows(path: Path, required: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Rows of a CSV file by column.

    Raises UserError: unreadable, too large, or without a required column.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            size = path.stat().st_size
            if size > MAX_FILE_BYTES:
                raise UserError(
                    f"{path}: has {size} bytes; at most {MAX_FILE_BYTES} are read, so leave some "
                    "rows out"
                )
            reader = csv.DictReader(file, restval="")
            missing_columns = [name for name in required if name not in (reader.fieldnames or ())]
            if missing_columns:
                raise UserError(f"{path}: lacks the column {missing_columns[0]}; add it")
            for row_index, row in enumerate(reader):
                if row_index == MAX_ROWS:
                    raise UserError(f"{path}: has more than {MAX_ROWS} rows; leave some out")
                yield row
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give a folder with {INDEX} and NAME.csv"
        ) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: is not CSV in UTF-8 ({error}); write it again") from None


def _number(path: Path, row_index: int, row: dict[str, str], column: str, highest: float) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (0.0 <= value <= highest and math.isfinite(value)):
        bounds = "of 0 or more" if highest == math.inf else f"from 0 to {highest:g}"
        raise UserError(
            f"{path}: {column} of reading {row_index + 1} is {row[column]!r}; give a number "
            f"{bounds}"
        )
    return value
