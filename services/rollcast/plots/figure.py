"""Functions that all pictures share: how a figure is made, its colours, its legend, how it is
written.
"""

import math
import os
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours of runs or sizes, in order: those of Okabe and Ito, which colour-blind readers can
distinguish."""
MARKERS = "os^D"
"""Shapes of points. Runs differ in colour and shape, so that no reader depends on colour alone."""
INK = "#1a1e23"
GREY = "#6b737c"
MOST_LABELLED = 24
"""Most curves whose names are shown in one picture; if there are more, no name is shown."""
LINE_INCHES = 0.17
"""Height of a line of a heading or a legend; the picture grows by it, so that text takes no room
from the curves."""


def check_plot(path: Path | None) -> Path | None:
    """The path, checked before any work: whether the picture can be drawn and written.

    Raises UserError: the ending is not known, the folder cannot take the file, or matplotlib is not
    installed.
    """
    if path is None:
        return None
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {path}: draws .png or .svg; choose one of these endings")
    if not path.parent.is_dir():
        raise UserError(
            f"--plot {path}: there is no folder {path.parent}; make it or choose another"
        )
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--plot {path}: cannot be written; choose another file")
    if find_spec("matplotlib") is None:
        raise UserError(
            f"--plot {path}: matplotlib is not installed; install it: pip install 'rollcast[plot]'"
        )
    return path


def new_figure(inches: tuple[float, float]) -> Any:
    """An empty figure that needs no display.

    Call `check_plot` first, which reports a missing matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_heading(figure: Any, sentences: Sequence[str], cautions: Sequence[str] = ()) -> None:
    """Write sentences above the picture; each begins a line.

    `cautions`: what the text warns of. A picture is passed on without its text.
    """
    # Characters in a line of a heading, by inch of the picture
    width = round(14 * figure.get_figwidth())
    all_sentences = [*sentences, *(f"caution: {caution}" for caution in cautions)]
    lines = [line for sentence in all_sentences for line in textwrap.wrap(sentence, width)]
    figure.set_figheight(figure.get_figheight() + LINE_INCHES * len(lines))
    figure.suptitle("\n".join(lines), fontsize=9.5, x=0.01, ha="left", color=INK)


def look_of_run(number: int) -> tuple[str, str]:
    """Colour and marker of the run at this place; different for the first 24 runs."""
    round_of_colours = number // len(COLOURS)
    return COLOURS[number % len(COLOURS)], MARKERS[(number + round_of_colours) % len(MARKERS)]


def legend_below(figure: Any, *legend_axes: Any, columns: int) -> None:
    """One legend of these axes (all of them by default) below the picture, so that it covers no
    part of a curve.
    """
    handles: dict[str, Any] = {}
    for axes in legend_axes or figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    figure.set_figheight(figure.get_figheight() + LINE_INCHES * math.ceil(len(handles) / columns))
    look = {"loc": "outside lower left", "ncols": columns, "frameon": False, "fontsize": 8}
    figure.legend(list(handles.values()), list(handles), **look)


def save(figure: Any, path: Path) -> None:
    """Write it, in the format of the ending. Raises UserError: the file cannot be written."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(
            f"--plot {path}: cannot be written ({error.strerror}); choose another folder"
        ) from None
