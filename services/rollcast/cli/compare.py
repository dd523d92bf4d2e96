"""`rollcast compare A B ...`: which run is better, by its asymptote first, then by its efficiency."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from rollcast.cli import curve_options as options
from rollcast.config.errors import UserError


def compare(
    sources: Annotated[list[str], typer.Argument(metavar="CURVE...", help=options.CURVE_HELP)],
    compute: options.Compute = None,
    pass_rate: options.PassRate = None,
    standard_error: options.StandardError = None,
    where: options.Where = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
) -> None:
    """Compare runs pairwise: asymptote A beyond the margin of 0.02, else exponent B at the common A."""
    from rollcast.cli.curve_source import Columns, fit_options, read_curve
    from rollcast.scaling.compare import compare as compare_forecasts
    from rollcast.scaling.posterior import fit

    columns = Columns(compute, pass_rate, standard_error, tuple(where or ()))
    curves = [read_curve(source, columns, None) for source in sources]
    try:
        forecasts = [fit(curve, fit_options(initial, exclude_before)) for curve in curves]
        pairs = compare_forecasts(forecasts)
    except ValueError as error:
        raise UserError(str(error)) from None
    runs = [
        {
            "curve": forecast.curve.name,
            "verdict": str(forecast.verdict.kind),
            "asymptote": dict(zip(("q05", "q50", "q95"), map(float, forecast.asymptote()), strict=True)),
            "exponent": dict(zip(("q05", "q50", "q95"), map(float, forecast.exponent()), strict=True)),
        }
        for forecast in forecasts
    ]
    if as_json:
        typer.echo(json.dumps({"runs": runs, "pairs": [asdict(pair) for pair in pairs]}, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "run", "A", "90 %", "B", "verdict", box=None, pad_edge=False, header_style="dim")
    for place, (run, forecast) in enumerate(zip(runs, forecasts, strict=True), start=1):
        low, middle, high = forecast.asymptote()
        exponent = f"{forecast.exponent()[1]:.2f}"
        table.add_row(
            str(place), str(run["curve"]), f"{middle:.3f}", f"{low:.3f} to {high:.3f}", exponent, str(run["verdict"])
        )
    console = Console(highlight=False)
    console.print(table)
    for pair in pairs:
        names = f"{forecasts[pair.first].curve.name} and {forecasts[pair.second].curve.name}"
        console.print(f"{names}: {pair.verdict}", markup=False, soft_wrap=True)
