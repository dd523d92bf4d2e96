"""What the three plans share: intervals as JSON, amounts as text, the kind of picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rollcast.config.errors import UserError

QUANTILES = (0.05, 0.5, 0.95)
Interval = dict[str, float | None]
"""5 %, 50 % and 95 % quantile; None = never."""
Plot = Annotated[Path | None, typer.Option(help="draw to this PNG or SVG file")]


def interval(values: Iterable[Any]) -> Interval:
    """Of three values in the order of the quantiles."""
    numbers = [None if math.isinf(value) else float(value) for value in values]
    return dict(zip(("q05", "q50", "q95"), numbers, strict=True))


def amount(value: float | None, form: str = ".4g") -> str:
    """A number, or `never`; no exponent below a million."""
    if value is None:
        return "never"
    if form.endswith("g") and 1e4 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return format(value, form)


def chance(probability: float) -> str:
    """In per cent; draws cannot tell more than 99 % from certain."""
    if probability > 0.99:
        return "over 99 %"
    return "under 1 %" if probability < 0.01 else f"{100 * probability:.0f} %"


def span(of: Interval, form: str = ".4g") -> str:
    """The 90 % interval in words."""
    return f"{amount(of['q05'], form)} to {amount(of['q95'], form)}"


def check_plot(path: Path | None) -> None:
    """Raises UserError before any work where the picture's kind is not known."""
    if path is not None and path.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {path}: draws .png or .svg; choose one of these endings")


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns of numbers; the first names the row."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)
