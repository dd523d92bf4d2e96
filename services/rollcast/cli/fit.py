"""`rollcast fit CURVE`: the end of a run, forecast from its evaluations."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rollcast.cli import advice, report
from rollcast.cli import curve_options as options
from rollcast.cli.output import say
from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError


@options.with_column_options
def fit(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    *,
    columns: options.ColumnOptions,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    law_alone: Annotated[
        bool, typer.Option("--law-alone", help="the paper's law and its own prior, and no other shape")
    ] = False,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the prior: what to expect of a run before its first evaluation", show_default=False
        ),
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
    from rollcast.curves.answer import answer_as_json
    from rollcast.curves.curve_source import forecast_source
    from rollcast.curves.sources.run_folder import spent_before
    from rollcast.runfolder.records import as_json as as_plain

    if plot is not None:
        report.check_plot(plot)
    if law_alone and prior is not None:
        raise UserError("--law-alone, --prior: each is a prior; give one of the two")
    if paper:
        from rollcast.cli.paper_fit import fit_as_paper

        _refuse_with_paper(
            {
                "law-alone": law_alone or None,
                "prior": prior,
                "budget": budget,
                "worth": worth,
                "price": price,
                "standard-error": columns.standard_error,
                "truncation-ratio": columns.truncation_ratio,
                "plot": plot,
            }
        )
        fit_as_paper(source, columns.chosen(), run, initial, exclude_before, at or [], target or [], as_json=as_json)
        return
    forecast = forecast_source(source, columns.chosen(), run, initial, exclude_before, law_alone, prior)
    last = forecast.newest.compute
    computes = at or [2 * last, 4 * last]
    if any(not 0 < value <= MOST_COMPUTE for value in computes):
        raise UserError(f"--at: {forecast.unit} must be in {COMPUTES}")
    answer: dict[str, Any] = {"advice": advice.advice_of(forecast, budget, worth, price)}
    try:
        answer |= answer_as_json(forecast, computes, target or [])
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    before = spent_before(Path(source))
    if before is not None:
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


def _refuse_with_paper(options_of_ours: dict[str, Any]) -> None:
    """Raises UserError: an option is given that the paper's fit does not have."""
    for name, value in options_of_ours.items():
        if value is not None:
            raise UserError(f"--paper, --{name}: the paper's fit has no such option; leave one of them out")


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
