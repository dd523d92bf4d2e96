"""A dashboard as one picture: each panel at its place, drawn from the answers to its queries."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter
from PIL import Image

from benchmarks.monitoring.tables import table
from testkit.monitoring.grafana import Answer, ask
from testkit.monitoring.recording import Recording

WIDTH_INCHES, UNIT_INCHES, DPI, COLOURS = 15.0, 0.27, 72, 96
_WITH_LEGEND = ("timeseries", "trend")
BAND = (("0.05", "0.95"), ("0.25", "0.75"))
_PANEL_COLOUR = {"blue": "#3274d9", "orange": "#e0711c", "red": "#c4162a"}
Series = list[tuple[str, np.ndarray, np.ndarray]]


def draw(board: dict[str, Any], recording: Recording, target: float, path: Path) -> None:
    """Write the dashboard as a PNG."""
    placed = [panel["gridPos"] for panel in board["panels"]]
    rows = max(place["y"] + place["h"] for place in placed)
    figure = plt.figure(figsize=(WIDTH_INCHES, rows * UNIT_INCHES), dpi=DPI, facecolor="white")
    for panel in board["panels"]:
        place = panel["gridPos"]
        left, bottom = place["x"] / 24, 1 - (place["y"] + place["h"]) / rows
        width, height = place["w"] / 24, place["h"] / rows
        if panel["type"] == "row":
            figure.text(
                0.004, bottom + height / 2, panel["title"], weight="bold", size=11, va="center"
            )
            continue
        title, axis, legend = (
            1.0 / rows,
            0.7 / rows,
            (0.9 if panel["type"] in _WITH_LEGEND else 0.0) / rows,
        )
        axes = figure.add_axes(
            (
                left + 0.035,
                bottom + axis + legend,
                width - 0.058,
                height - title - axis - legend - 0.2 / rows,
            )
        )
        axes.set_title(panel["title"], loc="left", size=9, pad=3)
        axes.tick_params(labelsize=7)
        answers = [ask(query, recording, target) for query in panel["targets"]]
        _DRAWN[panel["type"]](axes, panel, answers, recording)
    picture = io.BytesIO()
    figure.savefig(picture)
    plt.close(figure)
    Image.open(picture).convert("RGB").quantize(COLOURS).save(path, optimize=True)


def _series(panel: dict[str, Any], answers: Sequence[Answer], began: float) -> Series:
    """Name, minutes since the beginning, values."""
    found: Series = []
    for query, answer in zip(panel["targets"], answers, strict=True):
        for labels, values in answer.rows:
            name = _named(query.get("legendFormat", ""), labels)
            points = np.array(values)
            found.append((name, (points[:, 0] - began) / 60, points[:, 1]))
    return found


def _named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend).strip()


def _overrides(panel: dict[str, Any], name: str) -> dict[str, Any]:
    """Properties set for the series of that name."""
    found: dict[str, Any] = {}
    for override in panel["fieldConfig"]["overrides"]:
        wanted = override["matcher"]["options"]
        by_name = override["matcher"]["id"] == "byName"
        if wanted == name if by_name else re.fullmatch(wanted.strip("/"), name):
            found |= {each["id"]: each["value"] for each in override["properties"]}
    return found


def _colour(properties: dict[str, Any], place: int) -> str:
    fixed = properties.get("color", {}).get("fixedColor")
    return _PANEL_COLOUR.get(fixed, f"C{place % 10}")


def _lines(
    axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], recording: Recording
) -> None:
    series = _series(panel, answers, recording.began)
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    if series and custom.get("stacking", {}).get("mode") == "normal":
        times = np.unique(np.concatenate([x for _, x, _ in series]))
        heights = [np.nan_to_num(np.interp(times, x, y, left=0.0, right=0.0)) for _, x, y in series]
        axes.stackplot(times, heights, labels=[name for name, _, _ in series], alpha=0.7)
    else:
        _plot(axes, panel, series)
    if series:
        axes.set_xlim(left=min(float(x[0]) for _, x, _ in series))
    if any(query["datasource"]["uid"] == "${forecaster}" for query in panel["targets"]):
        axes.axvline((recording.at - recording.began) / 60, color="0.5", lw=0.8, ls=":")
    _scale(axes, panel)
    _legend(axes, panel)


def _plot(axes: Axes, panel: dict[str, Any], series: Series) -> None:
    """Lines, points and bands; what belongs to the right gets an axis of its own."""
    by_name = {name: (x, y) for name, x, y in series}
    for low, high in BAND:
        if low in by_name and high in by_name:
            axes.fill_between(
                by_name[low][0],
                by_name[low][1],
                by_name[high][1],
                color=_PANEL_COLOUR["blue"],
                alpha=0.15,
            )
    right: Axes | None = None
    for place, (name, x, y) in enumerate(series):
        properties = _overrides(panel, name)
        if properties.get("custom.lineWidth") == 0:
            continue
        here = axes
        if properties.get("custom.axisPlacement") == "right":
            right = right or axes.twinx()
            assert right is not None
            right.tick_params(labelsize=7)
            _unit(right, properties.get("unit", "short"))
            if "min" in properties:
                right.set_ylim(bottom=properties["min"])
            here = right
        colour = _colour(properties, place)
        label = "median" if name == "0.5" else name
        if properties.get("custom.drawStyle") == "points":
            here.plot(x, y, ".", ms=3, color=colour, label=label)
        else:
            dashed = properties.get("custom.lineStyle", {}).get("fill") == "dash"
            here.plot(
                x, y, lw=1.3, ls="--" if dashed else "-", color=colour, label=label, clip_on=False
            )
        if here is right:
            axes.plot([], [], color=colour, label=f"{label} (right)")


def _trend(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], _: Recording) -> None:
    columns: dict[str, list[tuple[float, float]]] = {}
    for labels, values in answers[0].rows:
        columns.setdefault(labels["series"], []).append((float(labels["at"]), values[0][1]))
    series: Series = []
    for name, points in sorted(columns.items()):
        array = np.array(sorted(points))
        series.append((name, array[:, 0], array[:, 1]))
    _plot(axes, panel, series)
    axes.set_xscale("log")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(panel["options"]["xField"], size=7, labelpad=0)
    _scale(axes, panel)
    _legend(axes, panel)


def _scale(axes: Axes, panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    _unit(axes, defaults.get("unit", "short"))
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"])
    axes.grid(color="0.9", lw=0.6)
    axes.set_axisbelow(True)


def _unit(axes: Axes, unit: str) -> None:
    if unit == "percentunit":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))
    elif unit == "bytes":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1024:.4g} KiB"))
    elif unit == "s":
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g} s"))


def _legend(axes: Axes, panel: dict[str, Any]) -> None:
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    if named:
        axes.legend(
            list(named.values())[:8],
            [textwrap.shorten(label, 34, placeholder="..") for label in named][:8],
            loc="upper center",
            bbox_to_anchor=(0.5, -0.09 if axes.get_xlabel() == "" else -0.12),
            ncols=4,
            fontsize=6.5,
            frameon=False,
            handlelength=1.2,
            columnspacing=1.0,
        )
    else:
        _nothing(axes, panel)


def _nothing(axes: Axes, panel: dict[str, Any]) -> None:
    says = panel["fieldConfig"]["defaults"].get("noValue", "No data")
    axes.text(
        0.5, 0.5, says, ha="center", va="center", size=9, color="0.5", transform=axes.transAxes
    )
    axes.set_axis_off()


def _number(
    axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], recording: Recording
) -> None:
    axes.set_axis_off()
    names_only = panel["options"]["textMode"] == "name"
    series = _series(panel, answers, recording.began)
    for place, (name, _, values) in enumerate(series):
        at = (place + 0.5) / len(series)
        axes.text(
            at,
            0.45,
            name if names_only else f"{values[-1]:.3f}",
            ha="center",
            size=14,
            transform=axes.transAxes,
        )
        if not names_only:
            axes.text(at, 0.2, name, ha="center", size=8, color="0.4", transform=axes.transAxes)


def _bars(
    axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], recording: Recording
) -> None:
    series = _series(panel, answers, recording.began)
    axes.barh([name for name, _, _ in series], [values[-1] for _, _, values in series], height=0.4)
    axes.set_xlim(0, 1)
    axes.set_yticks([])
    for place, (name, _, _) in enumerate(series):
        axes.text(0.01, place, name, size=7, va="center", color="white")
    axes.margins(y=1.0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.3g} %"))


def _states(
    axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], recording: Recording
) -> None:
    series = _series(panel, answers, recording.began)
    if not series:
        _nothing(axes, panel)
    for place, (_, x, y) in enumerate(series):
        width = float(np.median(np.diff(x))) if x.size > 1 else 0.1
        axes.broken_barh(
            [(at, width) for at, on in zip(x, y, strict=True) if on == 1], (place - 0.35, 0.7)
        )
    axes.set_yticks(range(len(series)), [name for name, _, _ in series], size=6)


def _rows(axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], _: Recording) -> None:
    axes.set_axis_off()
    found = table(panel, answers)
    if not found:
        _nothing(axes, panel)
        return
    columns = list(dict.fromkeys(name for row in found for name in row))
    cells = [[_cell(row.get(name, "")) for name in columns] for row in found[:14]]
    drawn = axes.table(
        cells, colLabels=columns, loc="upper center", cellLoc="left", edges="horizontal"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8)
    drawn.scale(1, min(1.4, 8.0 / (len(cells) + 1)))


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _heat(
    axes: Axes, panel: dict[str, Any], answers: Sequence[Answer], recording: Recording
) -> None:
    by_bound = sorted(
        (float(name), x, y) for name, x, y in _series(panel, answers, recording.began)
    )
    times = np.unique(np.concatenate([x for _, x, _ in by_bound]))
    cumulative = np.array([np.interp(times, x, y) for _, x, y in by_bound])
    counts = np.diff(cumulative, axis=0, prepend=0.0)
    finite = [bound for bound, _, _ in by_bound if math.isfinite(bound)]
    shown = max((place for place in range(len(finite)) if counts[place].max() > 0), default=0) + 2
    axes.pcolormesh(times, finite[:shown], counts[:shown], cmap="Blues", shading="nearest")


_DRAWN: dict[str, Callable[[Axes, dict[str, Any], Sequence[Answer], Recording], None]] = {
    "timeseries": _lines,
    "trend": _trend,
    "stat": _number,
    "bargauge": _bars,
    "state-timeline": _states,
    "table": _rows,
    "heatmap": _heat,
}
