"""`rollcast backtest CURVE`: the forecasts that were possible earlier, compared with the outcome.

`rollcast backtest --corpus FOLDER` measures them, and the advice, on many real curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.corpus.report import backtest_corpus
from rollcast.cli.output import say
from rollcast.config.errors import UserError
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.scaling.decisions.backtest import PastForecast
    from rollcast.scaling.law.curve import Curve

DEFAULT_SHARES = tuple(tenth / 10 for tenth in range(1, 10))


@options.with_column_options
def backtest(
    source: Annotated[
        str | None, typer.Argument(metavar="CURVE", help=options.CURVE_HELP, show_default=False)
    ] = None,
    *,
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="folder of many curves: measure forecasts and advice on all of them",
            show_default=False,
        ),
    ] = None,
    forecaster: Annotated[
        str | None,
        typer.Option(
            help="with --corpus: command of a program that is measured instead of Rollcast"
        ),
    ] = None,
    priors: Annotated[
        Path | None,
        typer.Option(
            help=(
                "with --corpus: folder with REPOSITORY.json (slash as __), the prior for that "
                "repository's curves"
            ),
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(help="share of the compute that is shown; repeatable; default every tenth"),
    ] = None,
    columns: options.ColumnOptions,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Forecast the end of a curve from its beginning, next to the last value and the power law.

    The end is the mean of the last three evaluations. With --corpus the forecasts and the advice
    are measured on many real curves, next to simple methods, for Rollcast or for any program:
    docs/forecast-measured.md.

    \b
    rollcast backtest curve.csv --plot past.png
    rollcast backtest runs/demo/evaluations.jsonl --share 0.25 --share 0.5 --json
    rollcast backtest --corpus curves/ --forecaster "python my_forecaster.py"
    """
    of_one_curve = {
        "CURVE": source,
        "--share": share,
        "--compute and other columns": None if columns == options.ColumnOptions() else columns,
        "--run": run,
        "--initial": initial,
        "--exclude-before": exclude_before,
        "--plot": plot,
    }
    if corpus is not None:
        _refuse("with --corpus", of_one_curve)
        backtest_corpus(corpus, forecaster, priors, as_json=as_json)
        return
    _refuse("without --corpus", {"--forecaster": forecaster, "--priors": priors})
    if source is None:
        raise UserError("CURVE, --corpus: both are absent; give one of them")
    from rollcast.curves.curve_source import fit_options, read_curves
    from rollcast.scaling.decisions.backtest import backtest as forecast_earlier

    shares = sorted(share or DEFAULT_SHARES)
    if any(not 0 < value < 1 for value in shares):
        raise UserError("--share: give values between 0 and 1")
    [(origin, curve)] = read_curves(source, columns.chosen(), run)
    try:
        past_forecasts = forecast_earlier(curve, shares, fit_options(initial, exclude_before))
    except ValueError as error:
        raise UserError(f"{source}: {error}") from None
    if not past_forecasts:
        raise UserError(f"{source}: no cut leaves enough evaluations; give a larger --share")
    answer = {**past_report(curve, shares, past_forecasts), "source": vars(origin)}
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.plots.backtest import draw_backtest

        draw_backtest(curve, answer, plot)


def _refuse(reason: str, option_values: dict[str, Any]) -> None:
    """Raises UserError: an option is given that this kind of backtest does not have."""
    for name, value in option_values.items():
        if value is not None:
            raise UserError(f"{name}: has no meaning {reason}; leave it out")


def past_report(
    curve: Curve, shares: Sequence[float], past_forecasts: Sequence[PastForecast]
) -> dict[str, Any]:
    forecast_shares = {past_forecast.share for past_forecast in past_forecasts}
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "compute": float(curve.compute[-1]),
        "unit": curve.unit,
        "outcome": past_forecasts[0].outcome,
        "cuts": [
            {
                "share": past_forecast.share,
                "compute": past_forecast.compute,
                "num_points": past_forecast.num_points,
                "forecast": amounts.interval(past_forecast.forecast),
                "last_value": past_forecast.last_value,
                "power_law": past_forecast.power_law,
                "error": past_forecast.error,
                "covered": past_forecast.covered,
                "verdict": str(past_forecast.verdict.kind),
                "is_decidable": past_forecast.verdict.kind.is_decidable,
                "reason": past_forecast.verdict.reason,
            }
            for past_forecast in past_forecasts
        ],
        "covered": sum(past_forecast.covered for past_forecast in past_forecasts),
        "left_out": [share for share in shares if share not in forecast_shares],
    }


def _show(answer: dict[str, Any]) -> None:
    header = ("seen", "points", "forecast", "90 %", "last value", "power law", "verdict")
    rows = [
        (
            f"{past_forecast['share']:.0%}",
            str(past_forecast["num_points"]),
            f"{past_forecast['forecast']['q50']:.3f}",
            amounts.span(past_forecast["forecast"], ".3f")
            + ("" if past_forecast["covered"] else " *"),
            f"{past_forecast['last_value']:.3f}",
            f"{past_forecast['power_law']:.3f}",
            past_forecast["verdict"].replace("_", " "),
        )
        for past_forecast in answer["cuts"]
    ]
    report.show_table(header, rows, text_columns=header[-1:])
    say(
        f"{answer['curve']}: {answer['outcome']:.3f} came, the mean of the last three evaluations; "
        f"{answer['covered']} of {len(rows)} intervals hold it"
        + ("." if answer["covered"] == len(rows) else " (* not).")
    )
    if answer["left_out"]:
        shares = ", ".join(f"{share:.0%}" for share in answer["left_out"])
        say(f"Left out: {shares}; too few evaluations before or after the cut.")
