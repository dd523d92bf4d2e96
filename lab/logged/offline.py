"""What Weights & Biases would show of an offline run, drawn from its files: it has no page without
its server.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

from rollcast.curves.formats import wandb_offline
from rollcast.curves.formats.log_file import LogFile

DPI, COLOURS = 80, 64
CURVES = (
    ("eval/pass_rate",),
    ("forecast/end_low", "forecast/end_median", "forecast/end_high"),
    ("train/reward_mean",),
    ("train/entropy",),
)


def draw_offline(file: Path, picture: Path) -> None:
    """Curves, the newest words of the forecast, and the newest table of samples."""
    rows = list(wandb_offline.rows(LogFile(file, print)))
    figure = plt.figure(figsize=(12.8, 7.4), dpi=DPI, layout="constrained")
    grid = figure.add_gridspec(3, len(CURVES), height_ratios=(3, 0.8, 1.6))
    for place, names in enumerate(CURVES):
        _curves(figure.add_subplot(grid[0, place]), rows, names)
    _words(figure.add_subplot(grid[1, :]), rows)
    _samples(figure.add_subplot(grid[2, :]), file)
    figure.savefig(picture)
    plt.close(figure)
    Image.open(picture).convert("RGB").quantize(COLOURS).save(picture, optimize=True)
    print(f"{picture.name}: {picture.stat().st_size / 1000:.0f} kB")


def _curves(axes: Axes, rows: list[dict[str, Any]], names: tuple[str, ...]) -> None:
    for name in names:
        points = [(row["step"], row[name]) for row in rows if name in row]
        axes.plot(*zip(*points, strict=True), marker=".", label=name)
    axes.set_title(names[0] if len(names) == 1 else "forecast/end_*", size=10)
    axes.set_xlabel("step", size=8)
    axes.tick_params(labelsize=8)
    axes.grid(color="0.9")
    if len(names) > 1:
        axes.legend(fontsize=7)


def _words(axes: Axes, rows: list[dict[str, Any]]) -> None:
    axes.set_axis_off()
    for place, name in enumerate(("forecast/verdict", "forecast/advice")):
        newest = [row[name] for row in rows if name in row][-1]
        axes.text(
            0.0,
            0.85 - 0.45 * place,
            name,
            size=9,
            weight="bold",
            transform=axes.transAxes,
            va="top",
        )
        axes.text(
            0.13,
            0.85 - 0.45 * place,
            textwrap.fill(newest, 125),
            size=9,
            transform=axes.transAxes,
            va="top",
        )


def _samples(axes: Axes, file: Path) -> None:
    """The newest table that W&B wrote next to the file."""
    axes.set_axis_off()
    newest = max(file.parent.rglob("*.table.json"), key=lambda path: path.stat().st_mtime)
    table = json.loads(newest.read_text())
    cells = [[textwrap.fill(str(cell), 70) for cell in row] for row in table["data"]]
    drawn = axes.table(
        cells, colLabels=table["columns"], loc="upper center", cellLoc="left", edges="horizontal"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(8.5)
    drawn.auto_set_column_width(list(range(len(table["columns"]))))
    drawn.scale(1, 1.6)
    axes.set_title(f"samples ({newest.name.partition('_')[0]})", loc="left", size=10)
