"""`rollcast fit CURVE`: the end of a run, forecast from its evaluations."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.output import echo_json, say
from rollcast.config.bounds import COMPUTES, MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves import amounts
from rollcast.plots.figure import save

if TYPE_CHECKING:
    from rollcast.curves.evaluations import Origin
    from rollcast.curves.run_forecast import RunForecast
    from rollcast.scaling.decisions.advice import Advice

Budget = Annotated[
    float | None,
    typer.Option(
        help=(
            "total compute at which the run would end; default: that of a TRL file, else twice the "
            "one so far"
        )
    ),
]
Worth = Annotated[
    float | None,
    typer.Option(
        help=(
            "gain in pass rate that the rest would be paid for; default: 0.02, less for a small "
            "rest"
        )
    ),
]
Price = Annotated[
    float | None, typer.Option(help="of one device-hour (one unit of the curve), in any currency")
]


@options.with_column_options
def fit(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    *,
    columns: options.ColumnOptions,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    law_alone: Annotated[
        bool,
        typer.Option("--law-alone", help="the paper's law and its own prior, and no other shape"),
    ] = False,
    prior: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with the prior: what to expect of a run before its first evaluation",
            show_default=False,
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper", help="the paper's own grid instead: A, B and C_mid, without intervals"
        ),
    ] = False,
    at: Annotated[
        list[float] | None,
        typer.Option(help="compute to predict, in the unit of the curve; repeatable"),
    ] = None,
    target: Annotated[
        list[float] | None, typer.Option(help="pass rate to reach; repeatable")
    ] = None,
    budget: Budget = None,
    worth: Worth = None,
    price: Price = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Fit the sigmoid law to a curve: whether to go on, asymptote, verdict, predictions, each with
    its interval.

    \b
    rollcast fit curve.csv --plot fit.png
    rollcast fit points.csv --compute gpu_hours --pass-rate reward --where suite=math --at 5000 --target 0.7
    rollcast fit curve.csv --budget 8000 --worth 0.01 --price 2.5
    rollcast fit http://127.0.0.1:9090 --run my-run --json
    """  # noqa: E501
    from rollcast.curves.answer import answer_as_json
    from rollcast.curves.curve_source import forecast_source
    from rollcast.curves.sources.run_folder import read_start_record
    from rollcast.runfolder.records import as_json as as_plain

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
        fit_as_paper(
            source,
            columns.chosen(),
            run,
            initial,
            exclude_before,
            at or [],
            target or [],
            as_json=as_json,
        )
        return
    forecast = forecast_source(
        source, columns.chosen(), run, initial, exclude_before, law_alone, prior
    )
    computes = at or forecast.usual_computes
    if any(not 0 < value <= MOST_COMPUTE for value in computes):
        raise UserError(f"--at: {forecast.unit} must be in {COMPUTES}")
    advice = _make_advice(forecast, budget, worth, price)
    answer: dict[str, Any] = {"advice": advice.to_dict()}
    try:
        answer |= answer_as_json(forecast, computes, target or [])
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    start_record = read_start_record(Path(source))
    if start_record is not None:
        answer["before"] = as_plain(start_record)
    if as_json:
        echo_json(answer)
    else:
        _show_all(answer, forecast, "" if start_record is None else start_record.sentence)
    if plot is not None:
        from rollcast.plots.forecast import forecast_figure

        until = advice.budget if budget is not None else max([advice.budget, *(at or [])])
        save(forecast_figure(forecast, advice, until=until), plot)


def _refuse_with_paper(options_of_ours: dict[str, Any]) -> None:
    """Raises UserError: an option is given that the paper's fit does not have."""
    for name, value in options_of_ours.items():
        if value is not None:
            raise UserError(
                f"--paper, --{name}: the paper's fit has no such option; leave one of them out"
            )


def _show_all(answer: dict[str, Any], forecast: "RunForecast", start_sentence: str) -> None:
    """Advice first, the fit, and what the run began with; empty = nothing that had a cost."""
    if answer["advice"]["headline"] is not None:
        _show_advice(answer["advice"], forecast.unit)
    _show(answer)
    if forecast.origin.is_mapped:
        _show_in_own_unit(answer, forecast.origin)
    if start_sentence:
        say(start_sentence)


def _show(answer: dict[str, Any]) -> None:
    report.show_verdict(answer)
    rows = [
        ("asymptote A", answer["asymptote"], ".3f"),
        ("headroom A - level now", answer["headroom"], amounts.DIFFERENCE),
        ("exponent B", answer["exponent"], ".2f"),
        (f"midpoint, {answer['unit']}", answer["midpoint"], ".4g"),
        ("initial R_0", answer["initial"], ".3f"),
    ]
    known_predictions = [
        prediction for prediction in answer["predictions"] if prediction["q50"] is not None
    ]
    rows += [
        (f"reading at {amounts.amount(prediction['compute'])} {answer['unit']}", prediction, ".3f")
        for prediction in known_predictions
    ]
    rows += [
        (f"{answer['unit']} to {target['pass_rate']:g}", target["compute"], ".4g")
        for target in answer["targets"]
    ]
    report.show_quantiles(rows)


def _show_in_own_unit(answer: dict[str, Any], origin: "Origin") -> None:
    """Show the pass rates as the values that the source holds."""
    from rollcast.curves.sheet import shorten_name

    def map_rates(rates: amounts.Interval | None) -> amounts.Interval | None:
        if rates is None or rates["q50"] is None:
            return None
        return {
            name: None if rate is None else origin.to_own_unit(rate) for name, rate in rates.items()
        }

    newest = origin.to_own_unit(answer["pass_rate"])
    level = origin.to_own_unit(answer["advice"]["level"])
    say(
        f"\nin the unit of {shorten_name(origin.pass_rate)}: now {newest:.4g}, level now "
        f"{level:.4g}"
    )
    rows = [
        ("asymptote A", map_rates(answer["asymptote"]), ".4g"),
        ("initial R_0", map_rates(answer["initial"]), ".4g"),
    ]
    for prediction in answer["predictions"]:
        rates = {name: value for name, value in prediction.items() if name != "compute"}
        rows.append(
            (
                f"reading at {amounts.amount(prediction['compute'])} {answer['unit']}",
                map_rates(rates),
                ".4g",
            )
        )
    report.show_quantiles(rows)


def _make_advice(
    run: "RunForecast", budget: float | None, worth: float | None, price: float | None
) -> "Advice":
    """Raises UserError: an option is out of bounds."""
    try:
        return run.advice(budget, worth, price)
    except ValueError as error:
        raise UserError(f"--{error}") from None


def _show_advice(advice: dict[str, Any], unit: str) -> None:
    """The action, its reason, its cost, and the figures that would change it."""
    say(f"{advice['headline']}. {advice['reason']}")
    say(advice["change"])
    rest = advice["rest"]
    soon = advice["soon"]
    if 0 < soon["compute"] < rest["compute"]:
        say(f"next tenth of the budget: {_stretch(soon, unit)}")
    if rest["compute"] > 0:
        rest_label = "as much again" if advice["is_assumed"] else "rest of the budget"
        say(f"{rest_label}: {_stretch(rest, unit)}")


def _stretch(stretch: dict[str, Any], unit: str) -> str:
    money = "" if stretch["money"] is None else f" for {amounts.amount(stretch['money'])}"
    gain = (
        ""
        if stretch["gain"] is None
        else f", gain {amounts.with_span(stretch['gain'], amounts.DIFFERENCE)}"
    )
    return f"{amounts.amount(stretch['compute'])} {unit}{money}{gain}"
