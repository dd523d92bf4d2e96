"""`rollcast fit CURVE`: where a run will end, from its evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.scaling.forecast import Forecast

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def fit(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    compute: options.Compute = None,
    pass_rate: options.PassRate = None,
    standard_error: options.StandardError = None,
    where: options.Where = None,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    at: Annotated[list[float] | None, typer.Option(help="device-hours to predict; repeatable")] = None,
    target: Annotated[list[float] | None, typer.Option(help="pass rate to reach; repeatable")] = None,
    as_json: options.AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="draw to this PNG or SVG file")] = None,
) -> None:
    """Fit the sigmoid law to a curve: asymptote, verdict, predictions, each with its interval."""
    from rollcast.cli.curve_source import Columns, fit_options, read_curve
    from rollcast.scaling.posterior import fit as fit_curve

    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise UserError(f"--plot {plot}: draws .png or .svg; choose one of these endings")
    curve = read_curve(source, Columns(compute, pass_rate, standard_error, tuple(where or ())), run)
    last = float(curve.compute[-1])
    computes = at or [2 * last, 4 * last]
    if any(not 0 < value <= 1e12 for value in computes):
        raise UserError("--at: device-hours must lie in (0, 1e12]")
    try:
        forecast = fit_curve(curve, fit_options(initial, exclude_before))
        answer = _answer(forecast, computes, target or [])
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    else:
        _show(answer)
    if plot is not None:
        from rollcast.cli.plot import draw_forecast

        draw_forecast(forecast, max(computes), plot)


def _answer(forecast: Forecast, computes: list[float], targets: list[float]) -> dict[str, Any]:
    curve, best = forecast.curve, forecast.best
    readings = forecast.predictive(computes, QUANTILES)
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        "verdict": str(forecast.verdict.kind),
        "reason": forecast.verdict.reason,
        "compute": float(curve.compute[-1]),
        "pass_rate": float(curve.pass_rate[-1]),
        "asymptote": _interval(forecast.asymptote(QUANTILES)),
        "headroom": _interval(forecast.headroom(QUANTILES)),
        "exponent": _interval(forecast.exponent(QUANTILES)),
        "midpoint": _interval(forecast.midpoint(QUANTILES)),
        "initial": _interval(forecast.initial(QUANTILES)),
        "best": vars(best),
        "predictions": [
            {"compute": compute, **_interval(readings[:, place])} for place, compute in enumerate(computes)
        ],
        "targets": [
            {"pass_rate": target, "compute": _interval(forecast.compute_to_target(target, QUANTILES))}
            for target in targets
        ],
    }


def _interval(values: Any) -> dict[str, float | None]:
    return {
        f"q{round(100 * level):02}": None if value == float("inf") else float(value)
        for level, value in zip(QUANTILES, values, strict=True)
    }


def _show(answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table("", "5 %", "median", "95 %", box=None, pad_edge=False, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"

    def row(name: str, interval: dict[str, float | None], form: str) -> None:
        cells = ("never" if interval[q] is None else format(interval[q], form) for q in ("q05", "q50", "q95"))
        table.add_row(name, *cells)

    row("asymptote A", answer["asymptote"], ".3f")
    row("headroom A - R(now)", answer["headroom"], ".3f")
    row("exponent B", answer["exponent"], ".2f")
    row("midpoint, device-hours", answer["midpoint"], ".4g")
    row("initial R_0", answer["initial"], ".3f")
    for prediction in answer["predictions"]:
        row(f"reading at {prediction['compute']:.4g}", prediction, ".3f")
    for target in answer["targets"]:
        row(f"device-hours to {target['pass_rate']:g}", target["compute"], ".4g")
    console.print(
        f"{answer['curve']}: {answer['num_points']} evaluations, {answer['excluded']} excluded, "
        f"now {answer['pass_rate']:.3f} at {answer['compute']:.4g} device-hours",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"{answer['verdict'].replace('_', ' ')}: {answer['reason']}", markup=False, soft_wrap=True)
    console.print(table)
