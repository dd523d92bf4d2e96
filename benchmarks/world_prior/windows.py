"""The beginnings of real curves, and their later readings.

A folder of curves holds `index.csv` (name, source_repo, metric) and, for each name, `NAME.csv` (x, y in [0, 1], where
known se). A cell is a metric and the share of a curve that is seen.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rollcast.scaling.law.curve import Curve

SHARES = (0.25, 0.5)
LEAST_POINTS, LEAST_SEEN, NUM_LAST = 10, 5, 3
"""Smallest number of readings of a curve, of its window, and of the end whose mean is the outcome."""
LEAST_ERROR = 1e-4


@dataclass(frozen=True, eq=False)
class Window:
    """`seen` of a curve of `repository`; `outcome` is the mean of its last readings, which are at `ahead`."""

    cell: str
    repository: str
    seen: Curve
    ahead: list[float]
    outcome: float


def windows(folder: Path) -> list[Window]:
    """Every window of every curve that is long enough, in the order of the index.

    Raises:
        ValueError: no index, or a curve that it names is absent or holds no numbers.
    """
    try:
        with (folder / "index.csv").open() as index:
            return [window for row in csv.DictReader(index) for window in _of_curve(folder, row)]
    except (OSError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: holds no curves with their index ({error}); see {__name__}.") from None


def _of_curve(folder: Path, row: dict[str, str]) -> Iterator[Window]:
    with (folder / f"{row['name']}.csv").open() as file:
        points = [(float(p["x"]), float(p["y"]), float(p["se"]) if p.get("se") else None) for p in csv.DictReader(file)]
    if len(points) < LEAST_POINTS:
        return
    first, last = points[0][0], points[-1][0]
    shift = 1.0 if first <= 0 else 0.0  # a first step of 0 would be a measured start; here it is a reading like others
    for share in SHARES:
        cut = first + share * (last - first)
        seen, late = [p for p in points if p[0] <= cut], [p for p in points if p[0] > cut]
        if len([p for p in seen if p[0] > 0]) < LEAST_SEEN or len(late) < NUM_LAST:
            continue
        errors = [max(error, LEAST_ERROR) for _, _, error in seen if error is not None]
        yield Window(
            cell=f"{row['metric']} {share:g}",
            repository=row["source_repo"],
            seen=Curve.from_points(
                [x + shift for x, _, _ in seen],
                [y for _, y, _ in seen],
                errors if len(errors) == len(seen) else None,
                unit="steps",
            ),
            ahead=[x + shift for x, _, _ in late[-NUM_LAST:]],
            outcome=sum(y for _, y, _ in late[-NUM_LAST:]) / NUM_LAST,
        )
