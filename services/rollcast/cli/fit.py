"""`rollcast fit CURVE`: where a run will end, from its evaluations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.curves.run_forecast import RunForecast

QUANTILES = report.FINER_QUANTILES


def fit(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    compute: options.Compute = None,
    pass_rate: options.PassRate = None,
    standard_error: options.StandardError = None,
    truncation_ratio: options.TruncationRatio = None,
    where: options.Where = None,
    scale: options.Scale = 1.0,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    at: Annotated[list[float] | None, typer.Option(help="device-hours to predict; repeatable")] = None,
    target: Annotated[list[float] | None, typer.Option(help="pass rate to reach; repeatable")] = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Fit the sigmoid law to a curve: asymptote, verdict, predictions, each with its interval.

    \b
    rollcast fit curve.csv --plot fit.png
    rollcast fit points.csv --compute gpu_hours --pass-rate reward --where suite=math --at 5000 --target 0.7
    rollcast fit http://127.0.0.1:9090 --run my-run --json
    """
    from rollcast.cli.curve_source import forecast_source
    from rollcast.curves.table import Columns

    report.check_plot(plot)
    columns = Columns(compute, pass_rate, standard_error, truncation_ratio, tuple(where or ()), scale)
    forecast = forecast_source(source, columns, run, initial, exclude_before)
    last = forecast.newest.compute
    computes = at or [2 * last, 4 * last]
    if any(not 0 < value <= 1e12 for value in computes):
        raise UserError("--at: device-hours must lie in (0, 1e12]")
    try:
        answer = _answer(forecast, computes, target or [])
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    else:
        _show(answer)
    if plot is not None:
        from rollcast.cli.plots.forecast import draw_forecast

        draw_forecast(forecast, max(computes), plot)


def _answer(run: RunForecast, computes: list[float], targets: list[float]) -> dict[str, Any]:
    forecast, curve = run.forecast, run.forecast.curve
    readings = run.reading(computes, QUANTILES)
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        "verdict": str(forecast.verdict.kind),
        "reason": forecast.verdict.reason,
        "compute": run.newest.compute,
        "fitted_on": run.axis.quantity,
        "start_up": run.axis.start_up,
        "pass_rate": float(curve.pass_rate[-1]),
        "asymptote": report.interval(forecast.asymptote(QUANTILES), QUANTILES),
        "headroom": report.interval(forecast.headroom(QUANTILES), QUANTILES),
        "exponent": report.interval(forecast.exponent(QUANTILES), QUANTILES),
        "midpoint": report.interval(run.midpoint(QUANTILES), QUANTILES),
        "initial": report.interval(forecast.initial(QUANTILES), QUANTILES),
        "best": vars(forecast.best),
        "predictions": [
            {"compute": compute, **report.interval(readings[:, place], QUANTILES)}
            for place, compute in enumerate(computes)
        ],
        "targets": [
            {"pass_rate": target, "compute": report.interval(run.compute_to_target(target, QUANTILES), QUANTILES)}
            for target in targets
        ],
    }


def _show(answer: dict[str, Any]) -> None:
    report.show_verdict(answer)
    rows = [
        ("asymptote A", answer["asymptote"], ".3f"),
        ("headroom A - R(now)", answer["headroom"], ".3f"),
        ("exponent B", answer["exponent"], ".2f"),
        ("midpoint, device-hours", answer["midpoint"], ".4g"),
        ("initial R_0", answer["initial"], ".3f"),
    ]
    rows += [(f"reading at {report.amount(at['compute'])}", at, ".3f") for at in answer["predictions"]]
    rows += [(f"device-hours to {to['pass_rate']:g}", to["compute"], ".4g") for to in answer["targets"]]
    report.show_table(("", "5 %", "median", "95 %"), [report.quantile_row(*row) for row in rows])
