"""`rollcast backtest CURVE`: what would have been said earlier, against what came."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rollcast.cli import curve_options as options
from rollcast.config.errors import UserError


def backtest(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    share: Annotated[list[float] | None, typer.Option(help="share of the compute that is shown; repeatable")] = None,
    compute: options.Compute = None,
    pass_rate: options.PassRate = None,
    standard_error: options.StandardError = None,
    where: options.Where = None,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
) -> None:
    """Forecast the end of a curve from its beginning, beside the last value and the power law."""
    from rollcast.cli.curve_source import Columns, fit_options, read_curve
    from rollcast.scaling.backtest import backtest as forecast_earlier

    shares = share or [0.25, 0.5, 0.75]
    if any(not 0 < value < 1 for value in shares):
        raise UserError("--share: give values between 0 and 1")
    curve = read_curve(source, Columns(compute, pass_rate, standard_error, tuple(where or ())), run)
    try:
        cuts = forecast_earlier(curve, shares, fit_options(initial, exclude_before))
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if not cuts:
        raise UserError(f"{source}: no cut leaves enough evaluations; give a larger --share")
    if as_json:
        records = [
            {
                "share": cut.share,
                "compute": cut.compute,
                "num_points": cut.num_points,
                "forecast": dict(zip(("q05", "q50", "q95"), cut.forecast, strict=True)),
                "last_value": cut.last_value,
                "power_law": cut.power_law,
                "outcome": cut.outcome,
                "verdict": str(cut.verdict.kind),
            }
            for cut in cuts
        ]
        typer.echo(json.dumps(records, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "seen", "points", "forecast", "90 %", "last value", "power law", "came", "verdict", box=None, pad_edge=False
    )
    for cut in cuts:
        low, middle, high = cut.forecast
        values = (f"{cut.last_value:.3f}", f"{cut.power_law:.3f}", f"{cut.outcome:.3f}", str(cut.verdict.kind))
        table.add_row(f"{cut.share:.0%}", str(cut.num_points), f"{middle:.3f}", f"{low:.3f}-{high:.3f}", *values)
    Console(highlight=False).print(table)
