"""Tables that W&B exports.

The table of a panel has "Step" and, for each run, "RUN - metric","RUN - metric__MIN","RUN - metric__MAX"; the columns
of one run become rows of that run. The table of a run's history has _step, _runtime and _timestamp next to the metrics.
"""

from collections.abc import Sequence

from rollcast.curves.sheet import RUN, Row, Sheet

PANEL_NAME = "W&B panel export"
HISTORY_NAME = "W&B run export"
BOUNDS = ("__MIN", "__MAX")
"""Endings of the columns with the least and the largest value, if the panel was smoothed or sampled."""
SEPARATOR = " - "
STEP_COUNTER = "_step"
HISTORY_MARKS = ("_step", "_runtime", "_timestamp")


def is_panel(header: Sequence[str]) -> bool:
    """Whether every column after the first belongs to a run, and one has columns of its bounds."""
    names = set(header)
    metrics = [name for name in header[1:] if not name.endswith(BOUNDS)]
    return (
        len(header) > 2
        and all(SEPARATOR in name for name in header[1:])
        and any(name + ending in names for name in metrics for ending in BOUNDS)
    )


def is_history(header: Sequence[str]) -> bool:
    """Whether two of W&B's own columns are there."""
    return sum(mark in header for mark in HISTORY_MARKS) > 1


def by_run(sheet: Sheet) -> Sheet:
    """A panel's rows, one for each run that has a value there: run, the panel's axis, its metrics."""
    axis = sheet.names[0]
    columns: dict[str, dict[str, str]] = {}
    for name in sheet.names[1:]:
        run, _, metric = name.rpartition(SEPARATOR)
        if not name.endswith(BOUNDS) and metric != STEP_COUNTER:
            columns.setdefault(run, {})[metric] = name
    rows: list[Row] = []
    for run, metrics in columns.items():
        for at, *values in zip(sheet.cells(axis), *map(sheet.cells, metrics.values()), strict=True):
            if any(values):
                rows.append({RUN: run, axis: at, **dict(zip(metrics, values, strict=True))})
    return Sheet.of_rows(PANEL_NAME, rows)
