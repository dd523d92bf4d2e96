"""What every picture has in common: how a figure is made, its colours, how it is written."""

import os
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError

COLOURS = ("#1d5fd1", "#c2571a", "#22804a", "#8a3fa0", "#a8324a", "#59626d")
"""Colours of runs or sizes, in order."""
INK = "#1a1e23"
GREY = "#7a818a"
MOST_LABELLED = 24
"""Most curves whose names are shown in one picture; if there are more, no name is shown."""
CAUTION_WIDTH = 130
"""Characters in a line of a caution: what fits below a picture of 8 inches."""


def check_plot(path: Path | None) -> Path | None:
    """The path, checked before any work: whether the picture can be drawn and written.

    Raises UserError: the ending is not known, the folder cannot take the file, or matplotlib is not installed.
    """
    if path is None:
        return None
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {path}: draws .png or .svg; choose one of these endings")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: there is no folder {path.parent}; make it or choose another")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--plot {path}: cannot be written; choose another file")
    if find_spec("matplotlib") is None:
        raise UserError(f"--plot {path}: matplotlib is not installed; install it: pip install 'rollcast[plot]'")
    return path


def new_figure(inches: tuple[float, float]) -> Any:
    """An empty figure that needs no display. Call `check_plot` first, which reports a missing matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_cautions(figure: Any, cautions: Sequence[str]) -> None:
    """What the text warns of, below the picture: it is passed on without the text."""
    lines = [line for one in cautions for line in textwrap.wrap(f"caution: {one}", CAUTION_WIDTH)]
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color=INK)


def save(figure: Any, path: Path) -> None:
    """Write it, in the format of the ending. Raises UserError: the file cannot be written."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"--plot {path}: cannot be written ({error.strerror}); choose another folder") from None
