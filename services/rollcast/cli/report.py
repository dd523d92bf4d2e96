"""Output that all commands on curves share: tables, and the state of a curve with its verdict."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rollcast.cli.output import echo_json, say
from rollcast.config.printable import printable
from rollcast.curves.amounts import Interval, amount, counted_evaluations
from rollcast.plots.figure import check_plot

Plot = Annotated[
    Path | None, typer.Option(callback=check_plot, help="draw to this PNG or SVG file")
]
JsonWithNews = Annotated[
    bool, typer.Option("--json", help="print JSON; what happens goes to standard error")
]
Cell = Callable[[dict[str, Any]], str]
"""The text of a cell, from the answer's part that the row is about."""
NO_NUMBER = "-"
"""Shown in a table for a number that does not exist."""


def show_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], text_columns: Sequence[str] = ()
) -> None:
    """Columns of numbers; the first names the row.

    `text_columns`: further columns that hold words.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "left" if column.header in text_columns else "right"
    for row in rows:
        table.add_row(*map(printable, row))
    # Width of a table that is not shown on a terminal: no line is wrapped
    width = None if sys.stdout.isatty() else 200
    Console(highlight=False, markup=False, emoji=False, width=width).print(table)


def show_columns(
    rows: Iterable[dict[str, Any]],
    columns: Mapping[str, Cell],
    text_columns: Sequence[str] = (),
) -> None:
    """A table by columns: heading -> the cell of a row."""
    cells = [[cell(row) for cell in columns.values()] for row in rows]
    show_table(tuple(columns), cells, text_columns)


def show_quantiles(rows: Iterable[tuple[str, Interval | None, str]]) -> None:
    """A table of intervals by name, each with the form of its numbers; those that are not known are
    left out.
    """
    known_rows = [
        (name, *(amount(quantiles[quantile], form) for quantile in ("q05", "q50", "q95")))
        for name, quantiles, form in rows
        if quantiles is not None
    ]
    if known_rows:
        show_table(("", "5 %", "median", "95 %"), known_rows)


def print_answer(
    answer: dict[str, Any], show: Callable[[dict[str, Any]], None], *, as_json: bool
) -> None:
    """Print the answer as JSON, or as `show` prints it."""
    if as_json:
        echo_json(answer)
    else:
        show(answer)


def say_cautions(cautions: Iterable[str]) -> None:
    for sentence in cautions:
        say(f"caution: {sentence}")


def show_verdict(answer: dict[str, Any]) -> None:
    """Print the newest evaluation and the verdict."""
    from rollcast.scaling.decisions.verdict import VerdictKind

    evaluations_text = counted_evaluations(answer["num_points"], answer["num_at_start"])
    dropped = f"{answer['dropped']} without a number dropped, " if answer["dropped"] else ""
    say(
        f"{answer['curve']}: {evaluations_text}, {answer['excluded']} excluded, {dropped}"
        f"newest {answer['pass_rate']:.3f} at {amount(answer['compute'])} {answer['unit']}"
    )
    say(f"{answer['verdict'].replace('_', ' ')}: {answer['reason']}")
    if not answer["is_described"] and answer["verdict"] != VerdictKind.TOO_FEW:
        say(
            "No asymptote, headroom, exponent or midpoint is given: they would be those of a law "
            "that this curve does not follow."
        )
