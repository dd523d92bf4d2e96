"""What the commands on curves share: intervals as JSON, amounts as text, tables, the kind of picture."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from rollcast.cli.output import say
from rollcast.config.errors import UserError
from rollcast.curves.left_out import counted
from rollcast.scaling.decisions.digits import difference

QUANTILES = (0.05, 0.5, 0.95)
FINER_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
Interval = dict[str, float | None]
"""Quantiles by name, as q05, q50 and q95; None = never."""
Plot = Annotated[Path | None, typer.Option(help="draw to this PNG or SVG file")]
WIDTH_OF_A_PIPE = 200
"""Columns of a table that no terminal shows: nothing is wrapped."""
FOR_DECISIONS = ("forecastable", "saturated")
"""Verdicts whose numbers are for decisions."""
NO_SIGMOID = "not_sigmoid"
NOTHING = "-"
DIFFERENCE = "difference"
"""The form of a difference of pass rates."""
"""In a table, where there is no number."""


def interval(values: Iterable[Any], levels: Sequence[float] = QUANTILES) -> Interval:
    """Of as many values as there are levels, in their order."""
    return {
        f"q{round(100 * level):02}": None if math.isinf(value) else float(value)
        for level, value in zip(levels, values, strict=True)
    }


def law_describes(verdict: str) -> bool:
    """Whether the law's constants mean something: where the curve is no sigmoid they are of a law that it is not."""
    return verdict != NO_SIGMOID


def interval_of_law(verdict: str, values: Iterable[Any], levels: Sequence[float] = QUANTILES) -> Interval | None:
    """As `interval`, of a constant of the law; None where the law is not what the curve shows."""
    return interval(values, levels) if law_describes(verdict) else None


def amount(value: float | None, form: str = ".4g") -> str:
    """A number, or `never`; no exponent below a million. `form`: as `format` takes it, or DIFFERENCE."""
    if value is None:
        return "never"
    if form == DIFFERENCE:
        return difference(value)
    if form.endswith("g") and 1e4 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return format(value, form)


def span(of: Interval, form: str = ".4g") -> str:
    """The 90 % interval in words."""
    return f"{amount(of['q05'], form)} to {amount(of['q95'], form)}"


def with_span(of: Interval, form: str = ".4g") -> str:
    """The median, and the 90 % interval in brackets; for tables of what is never negative."""
    return f"{amount(of['q50'], form)} ({amount(of['q05'], form)}–{amount(of['q95'], form)})"


def quantile_row(name: str, of: Interval, form: str) -> tuple[str, ...]:
    """A row of a table with the columns 5 %, median, 95 %."""
    return name, *(amount(of[quantile], form) for quantile in ("q05", "q50", "q95"))


def check_plot(path: Path | None) -> None:
    """Raises UserError before any work where the picture's kind is not known, its folder cannot take it, or matplotlib
    is not installed."""
    if path is None:
        return
    if path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {path}: draws .png or .svg; choose one of these endings")
    if not path.parent.is_dir():
        raise UserError(f"--plot {path}: there is no folder {path.parent}; make it or choose another")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--plot {path}: cannot be written; choose another file")
    if find_spec("matplotlib") is None:
        raise UserError(f"--plot {path}: matplotlib is not installed; install it: pip install 'rollcast[plot]'")


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> None:
    """Columns of numbers; the first names the row. `left`: further columns that hold words."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "left" if column.header in left else "right"
    for row in rows:
        table.add_row(*row)
    width = None if sys.stdout.isatty() else WIDTH_OF_A_PIPE
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)


def show_verdict(answer: dict[str, Any]) -> None:
    """Where the curve is, and what kind of curve it is."""
    dropped = f"{answer['dropped']} without a number dropped, " if answer["dropped"] else ""
    say(
        f"{answer['curve']}: {counted(answer['num_points'], 'evaluation')}, {answer['excluded']} excluded, {dropped}"
        f"now {answer['pass_rate']:.3f} at {amount(answer['compute'])} {answer['unit']}"
    )
    say(f"{answer['verdict'].replace('_', ' ')}: {answer['reason']}")
    if not law_describes(answer["verdict"]):
        say("No asymptote, exponent or midpoint is given: they would be those of a law that this curve is not.")
