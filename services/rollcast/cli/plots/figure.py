"""What every picture has in common: how a figure is made, its colours, how it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError

COLOURS = ("#1d5fd1", "#c2571a", "#22804a", "#8a3fa0", "#a8324a", "#59626d")
"""Of runs or sizes, in order."""
INK, GREY = "#1a1e23", "#7a818a"


def new_figure(inches: tuple[float, float]) -> Any:
    """An empty figure that needs no display.

    Raises UserError where matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("--plot: matplotlib is not installed; pip install 'rollcast[forecaster]'") from None
    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write it, in the format of the ending.

    Raises UserError where the file cannot be written.
    """
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"--plot {path}: cannot be written ({error.strerror}); choose another folder") from None
