"""`rollcast fit CURVE`: where a run will end, from its evaluations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import advice, report
from rollcast.cli import curve_options as options
from rollcast.cli.output import say
from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.curves.run_forecast import RunForecast

QUANTILES = report.FINER_QUANTILES


def fit(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    compute: options.Compute = None,
    seconds: options.Seconds = None,
    devices: options.Devices = None,
    pass_rate: options.PassRate = None,
    standard_error: options.StandardError = None,
    truncation_ratio: options.TruncationRatio = None,
    where: options.Where = None,
    scale: options.Scale = 1.0,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    law_alone: Annotated[
        bool, typer.Option("--law-alone", help="the paper's law and its own prior, no other shape beside it")
    ] = False,
    prior: Annotated[
        Path | None, typer.Option(help="JSON file with what is believed of a run before it is seen", show_default=False)
    ] = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="the paper's own grid instead: A, B and C_mid, without intervals")
    ] = False,
    at: Annotated[
        list[float] | None, typer.Option(help="compute to predict, in the unit of the curve; repeatable")
    ] = None,
    target: Annotated[list[float] | None, typer.Option(help="pass rate to reach; repeatable")] = None,
    budget: advice.Budget = None,
    worth: advice.Worth = None,
    price: advice.Price = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Fit the sigmoid law to a curve: whether to go on, asymptote, verdict, predictions, each with its interval.

    \b
    rollcast fit curve.csv --plot fit.png
    rollcast fit points.csv --compute gpu_hours --pass-rate reward --where suite=math --at 5000 --target 0.7
    rollcast fit curve.csv --budget 8000 --worth 0.01 --price 2.5
    rollcast fit http://127.0.0.1:9090 --run my-run --json
    """
    from rollcast.curves.curve_source import forecast_source
    from rollcast.curves.run_folder import spent_before
    from rollcast.curves.table import Columns
    from rollcast.runfolder.records import as_json as as_plain

    report.check_plot(plot)
    columns = Columns(compute, pass_rate, standard_error, truncation_ratio, tuple(where or ()), scale, seconds, devices)
    if law_alone and prior is not None:
        raise UserError("--law-alone, --prior: each is a prior; give one of the two")
    if paper:
        from rollcast.cli.paper_fit import fit_as_paper

        options_of_ours = {
            "law-alone": law_alone or None,
            "prior": prior,
            "budget": budget,
            "worth": worth,
            "price": price,
            "standard-error": standard_error,
            "truncation-ratio": truncation_ratio,
        }
        if beside := [name for name, given in {**options_of_ours, "plot": plot}.items() if given is not None]:
            raise UserError(f"--paper, --{beside[0]}: the paper's fit knows nothing of that; leave one of them out")
        fit_as_paper(source, columns, run, initial, exclude_before, at or [], target or [], as_json=as_json)
        return
    forecast = forecast_source(source, columns, run, initial, exclude_before, law_alone, prior)
    last = forecast.newest.compute
    computes = at or [2 * last, 4 * last]
    if any(not 0 < value <= MOST_COMPUTE for value in computes):
        raise UserError(f"--at: {forecast.unit} must lie in {COMPUTES}")
    answer: dict[str, Any] = {"advice": advice.advice_of(forecast, budget, worth, price)}
    try:
        answer |= fit_report(forecast, computes, target or [])
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if (before := spent_before(Path(source))) is not None:
        answer["before"] = as_plain(before)
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    else:
        advice.show_advice(answer["advice"], forecast.unit)
        _show(answer)
        if before is not None:
            say(before.sentence)
    if plot is not None:
        from rollcast.plots.forecast import draw_forecast

        draw_forecast(forecast, max(computes), plot)


def fit_report(run: RunForecast, computes: list[float], targets: list[float]) -> dict[str, Any]:
    """Everything that is said of a run, as JSON. Raises ValueError: a target that is no pass rate."""
    forecast, curve = run.forecast, run.forecast.curve
    kind = forecast.verdict.kind
    readings = run.reading(computes, QUANTILES)
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "incomplete": run.num_incomplete,
        "excluded": forecast.excluded,
        "verdict": str(kind),
        "reason": forecast.verdict.reason,
        "compute": run.newest.compute,
        "unit": run.unit,
        "source": vars(run.origin),
        "fitted_on": run.fitted_on,
        "start_up": run.axis.start_up,
        "pass_rate": float(curve.pass_rate[-1]),
        "asymptote": report.interval_of_law(kind, forecast.asymptote(QUANTILES), QUANTILES),
        "ceiling_probability": forecast.ceiling_probability,
        "headroom": report.interval_of_law(kind, forecast.headroom(QUANTILES), QUANTILES),
        "exponent": report.interval_of_law(kind, forecast.exponent(QUANTILES), QUANTILES),
        "midpoint": report.interval_of_law(kind, run.midpoint(QUANTILES), QUANTILES),
        "initial": report.interval_of_law(kind, forecast.initial(QUANTILES), QUANTILES),
        "best": vars(forecast.best) if report.law_describes(kind) else None,
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
        ("headroom A - R(now)", answer["headroom"], report.DIFFERENCE),
        ("exponent B", answer["exponent"], ".2f"),
        (f"midpoint, {answer['unit']}", answer["midpoint"], ".4g"),
        ("initial R_0", answer["initial"], ".3f"),
    ]
    rows += [(f"reading at {report.amount(at['compute'])}", at, ".3f") for at in answer["predictions"]]
    rows += [(f"{answer['unit']} to {to['pass_rate']:g}", to["compute"], ".4g") for to in answer["targets"]]
    report.show_table(("", "5 %", "median", "95 %"), [report.quantile_row(*row) for row in rows if row[1]])
