"""The curve of pass rates with its forecast, in characters."""

from collections.abc import Sequence
from itertools import pairwise

import rich.text

from rollcast.local.forecast_reading import ForecastReading
from rollcast.runfolder.records import EvaluationRecord

LABEL_COLUMNS = 7
"""Pass rate and edge."""
_POINT = "●"
_MIDDLE = "─"
_BAND = "░"
_STYLE = {_POINT: "bold green", _MIDDLE: "yellow", _BAND: "dim yellow"}
Band = Sequence[tuple[float, float, float, float]]


def draw_curve(
    points: Sequence[EvaluationRecord], forecast: ForecastReading | None, width: int, height: int
) -> list[rich.text.Text]:
    """`height` lines of at most `width` columns: points ●, the forecast's median ─ and its 90 %
    interval ░.

    Compute from 0 to the end of the budget, or to 1.5 times the compute so far; the scale fits the
    shown values.
    """
    columns = width - LABEL_COLUMNS
    rows = height - 2
    if columns < 10 or rows < 3 or not points:
        return []
    current_hours = points[-1].compute_device_hours
    end = forecast.end_device_hours if forecast is not None else None
    last = max(end, current_hours) if end is not None else 1.5 * current_hours
    if last <= 0:
        last = 1.0
    band = _interpolate_band(
        [] if forecast is None else forecast.band, columns, last, current_hours
    )
    low, high = _scale(points, band)
    cells = [[" "] * columns for _ in range(rows)]

    def row(rate: float) -> int:
        return min(rows - 1, max(0, round((high - rate) / (high - low) * (rows - 1))))

    for column, (bottom, middle, top) in band.items():
        for line in range(row(top), row(bottom) + 1):
            cells[line][column] = _BAND
        cells[row(middle)][column] = _MIDDLE
    for point in points:
        column = min(columns - 1, round(point.compute_device_hours / last * (columns - 1)))
        cells[row(point.pass_rate)][column] = _POINT
    return [
        *_with_scale(cells, low, high),
        *_feet(columns, last, current_hours, is_budget=end is not None),
    ]


def _interpolate_band(
    band: Band, columns: int, last: float, current_hours: float
) -> dict[int, tuple[float, float, float]]:
    """The band at each column from the newest evaluation on, straight between its points."""
    interpolated_band = {}
    for column in range(columns):
        column_hours = column / (columns - 1) * last
        if column_hours < current_hours:
            continue
        for (left_hours, *left_rates), (right_hours, *right_rates) in pairwise(band):
            if left_hours <= column_hours <= right_hours and right_hours > left_hours:
                share = (column_hours - left_hours) / (right_hours - left_hours)
                low, middle, high = (
                    a + share * (b - a) for a, b in zip(left_rates, right_rates, strict=True)
                )
                interpolated_band[column] = (low, middle, high)
                break
    return interpolated_band


def _scale(
    points: Sequence[EvaluationRecord], band: dict[int, tuple[float, float, float]]
) -> tuple[float, float]:
    values = [point.pass_rate for point in points]
    for bottom, _, top in band.values():
        values += [bottom, top]
    low = max(0.0, min(values))
    high = min(1.0, max(values))
    # Smallest range of the scale, in pass rate: the noise of a single evaluation must not look like
    # a climb.
    min_scale_range = 0.05
    if high - low < min_scale_range:
        low = max(0.0, (low + high - min_scale_range) / 2)
        high = low + min_scale_range
    return low, high


def _with_scale(cells: list[list[str]], low: float, high: float) -> list[rich.text.Text]:
    lines = []
    middle = (len(cells) - 1) // 2
    for row_index, row in enumerate(cells):
        scale_rate = {
            0: high,
            middle: high - (high - low) * middle / (len(cells) - 1),
            len(cells) - 1: low,
        }.get(row_index)
        line = rich.text.Text("     │ " if scale_rate is None else f"{scale_rate:.3f}┤ ")
        for cell in row:
            line.append(cell, _STYLE.get(cell, ""))
        line.rstrip()
        lines.append(line)
    return lines


def _feet(
    columns: int, last: float, current_hours: float, *, is_budget: bool
) -> list[rich.text.Text]:
    """The axis with a mark at the compute so far, and its labels."""
    mark = min(columns - 1, round(current_hours / last * (columns - 1)))
    axis = "─" * mark + "┴" + "─" * (columns - 1 - mark)
    current_label = f"now {current_hours:.3g}"
    end = ", the end" if is_budget else ""
    unit = " device-hours"
    if len(f"0 {last:.3g}{unit}") > columns:
        unit = ""
    for right in (f"{last:.3g}{unit}{end}", f"{last:.3g}{unit}"):
        feet = "0".ljust(columns - len(right)) + right
        free = columns - len(right) - 2
        if mark > 2 and mark + len(current_label) <= free:
            feet = feet[:mark] + current_label + feet[mark + len(current_label) :]
            break
        if len(current_label) + 2 < mark < free:
            feet = feet[: mark - len(current_label) + 1] + current_label + feet[mark + 1 :]
            break
    return [rich.text.Text(f"     └ {axis}", "dim"), rich.text.Text(f"       {feet}", "dim")]
