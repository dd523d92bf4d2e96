"""`rollcast compare A B ...`: which run is better, by its asymptote first, then by its efficiency."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.distinct_curves import refuse_twice, refuse_two_units, with_distinct_names
from rollcast.cli.output import say
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.curves.origin import Origin
    from rollcast.curves.table import Columns
    from rollcast.scaling.compare import Comparison
    from rollcast.scaling.curve import Curve, SigmoidParameters
    from rollcast.scaling.forecast import Forecast
    from rollcast.scaling.leave_one_out import LeaveOneOut, Row


def compare(
    sources: Annotated[list[str], typer.Argument(metavar="CURVE...", help=options.CURVE_HELP)],
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="curve of the whole recipe: print the leave-one-out table")
    ] = None,
    compute: options.Compute = None,
    seconds: options.Seconds = None,
    devices: options.Devices = None,
    pass_rate: Annotated[
        list[str] | None, typer.Option(help="column of pass rates in [0, 1]; repeatable: a curve of each")
    ] = None,
    standard_error: options.StandardError = None,
    truncation_ratio: options.TruncationRatio = None,
    where: options.Where = None,
    scale: options.Scale = 1.0,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Compare runs pairwise: asymptote A beyond the margin of 0.02, else efficiency at the common A: B, and the compute
    that is taken half-way up.

    With --baseline every other run is one without a part of the recipe: the table says what each part is worth.
    The picture shows the curves and the log re-plot, in which each run is a line of slope B.
    A file with several runs, told by its column `run`, and a Prometheus with several give one curve for each.
    So does a file of which --pass-rate names several columns.

    \b
    rollcast compare a.csv b.csv --plot compare.png
    rollcast compare scalerl.csv no-fp32.csv dapo-loss.csv --baseline scalerl
    rollcast compare runs.csv --compute gpu_hours --pass-rate reward --baseline scalerl
    rollcast compare run.csv --pass-rate eval/gsm8k --pass-rate eval/math
    rollcast compare a.csv b.csv c.csv --initial 0.4 --exclude-before 1500 --json
    """
    from rollcast.curves.curve_source import fit_options
    from rollcast.curves.table import Columns
    from rollcast.scaling.compare import compare as compare_forecasts
    from rollcast.scaling.leave_one_out import leave_one_out
    from rollcast.scaling.posterior import fit

    report.check_plot(plot)
    columns = Columns(compute, None, standard_error, truncation_ratio, tuple(where or ()), scale, seconds, devices)
    read = _of_every_measure(list(dict.fromkeys(sources)) if pass_rate else sources, columns, pass_rate or [])
    found = [(source, curve) for source, _, curve in read]
    refuse_two_units(found)
    refuse_twice(found, beginnings=False)
    origins, curves = [source for source, _ in found], with_distinct_names(found)
    as_what = {curve.name: vars(origin) for (_, origin, _), curve in zip(read, curves, strict=True)}
    if baseline is not None:
        curves.insert(0, curves.pop(_place_of(baseline, curves, origins)))
    table: LeaveOneOut | None = None
    pairs: list[Comparison] = []
    try:
        forecasts = [fit(curve, fit_options(initial, exclude_before, law_alone=True)) for curve in curves]
        if baseline is not None:
            table = leave_one_out(forecasts[0], forecasts[1:])
        else:
            pairs = compare_forecasts(forecasts)
    except ValueError as error:
        raise UserError(str(error)) from None
    laws = [middle_law(forecast) for forecast in (forecasts if table is None else table.at_common)]
    answer: dict[str, Any] = {
        "unit": curves[0].unit,
        "runs": [
            {**run_report(forecast, law), "source": as_what[forecast.curve.name]}
            for forecast, law in zip(forecasts, laws, strict=True)
        ],
        **(
            {"pairs": [_pair_report(pair, forecasts) for pair in pairs]}
            if table is None
            else {"leave_one_out": table_report(table)}
        ),
    }
    answer["cautions"] = cautions(answer["runs"], "its comparisons yet" if table is None else "its row")
    if as_json:
        typer.echo(json.dumps(answer, indent=1))
    elif table is None:
        _show_runs(answer)
    else:
        show_leave_one_out(answer)
    if plot is not None:
        from rollcast.plots.comparison import draw_comparison

        draw_comparison(forecasts, answer, plot)


def _of_every_measure(
    sources: Sequence[str], columns: Columns, measures: Sequence[str]
) -> list[tuple[str, Origin, Curve]]:
    """Source, as what it was read, and the curve: of each run of each source, and of each measure that is named.

    Where several are, the measure is in the curve's name, and in that of its source.
    """
    from rollcast.curves.curve_source import read_curves

    several = len(measures) > 1
    wanted: list[str | None] = [*measures] or [None]
    return [
        (
            f"{source} {measure}" if several else source,
            origin,
            replace(curve, name=f"{curve.name} {measure}") if several else curve,
        )
        for source in sources
        for measure in wanted
        for origin, curve in read_curves(source, replace(columns, pass_rate=measure), all_runs=True)
    ]


def middle_law(forecast: Forecast) -> SigmoidParameters:
    """The medians that the table shows, as one law: the picture draws what is printed."""
    from rollcast.scaling.curve import SigmoidParameters

    middle = (0.5,)
    return SigmoidParameters(
        initial=float(forecast.initial(middle)[0]),
        asymptote=float(forecast.asymptote(middle)[0]),
        exponent=float(forecast.exponent(middle)[0]),
        midpoint=float(forecast.midpoint(middle)[0]),
    )


def _pair_report(pair: Comparison, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """A run that is no sigmoid has no A and no B to compare: then only the sentence is given."""
    found = asdict(pair)
    without = [
        forecast.curve.name
        for forecast in (forecasts[pair.first], forecasts[pair.second])
        if not report.law_describes(forecast.verdict.kind)
    ]
    if not without:
        return found
    told = f"not compared: no sigmoid describes {' and '.join(without)}."
    return {name: value if name in ("first", "second") else None for name, value in found.items()} | {"verdict": told}


def _place_of(baseline: str, curves: Sequence[Curve], sources: Sequence[str]) -> int:
    found = [
        place
        for place, (curve, source) in enumerate(zip(curves, sources, strict=True))
        if baseline in (curve.name, source)
    ]
    if len(found) != 1:
        names = ", ".join(curve.name for curve in curves)
        raise UserError(f"--baseline {baseline}: names {len(found)} of the curves; name one of {names}")
    return found[0]


def run_report(forecast: Forecast, law: SigmoidParameters) -> dict[str, Any]:
    """Everything that is said of one run, as JSON; `law` is that of its log re-plot."""
    curve, kind = forecast.curve, forecast.verdict.kind
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        "verdict": str(kind),
        "reason": forecast.verdict.reason,
        "for_decisions": str(kind) in report.FOR_DECISIONS,
        "compute": float(curve.compute[-1]),
        "unit": curve.unit,
        "pass_rate": float(curve.pass_rate[-1]),
        "asymptote": report.interval_of_law(kind, forecast.asymptote()),
        "exponent": report.interval_of_law(kind, forecast.exponent()),
        "midpoint": report.interval_of_law(kind, forecast.midpoint()),
        "initial": report.interval_of_law(kind, forecast.initial()),
        "log_replot": replot_report(forecast, law),
    }


def replot_report(forecast: Forecast, law: SigmoidParameters) -> dict[str, Any]:
    """The law's constants and ln F over ln C of the fitted points; those outside (R_0, A) have no F and are counted."""
    from rollcast.scaling.compare import log_replot

    curve = forecast.curve
    fitted = curve.window(float(curve.compute[min(forecast.excluded, len(curve) - 1)]))
    log_compute, log_factor = log_replot(fitted, law)
    return {
        **asdict(law),
        "log_compute": log_compute.tolist(),
        "log_factor": log_factor.tolist(),
        "left_out": len(fitted) - log_compute.size,
    }


def table_report(table: LeaveOneOut) -> dict[str, Any]:
    """The leave-one-out table as JSON; the whole recipe is the first row and has no losses."""
    from rollcast.scaling.curve import MARGIN

    def row_report(row: Row) -> dict[str, Any]:
        return {
            "curve": row.name,
            "num_runs": row.num_runs,
            "asymptote": report.interval(row.asymptote),
            "exponent": report.interval(row.exponent),
            "midpoint": report.interval(row.midpoint),
            "exponent_at_common": report.interval(row.exponent_at_common),
            "asymptote_loss": None if row.asymptote_loss is None else report.interval(row.asymptote_loss),
            "exponent_loss": None if row.exponent_loss is None else report.interval(row.exponent_loss),
            "compute_ratio": None if row.compute_ratio is None else report.interval(row.compute_ratio),
            "kind": None if row.kind is None else str(row.kind),
        }

    return {
        "baseline": table.rows[0].name,
        "common_asymptote": table.common_asymptote,
        "half_way": table.half_way,
        "far_from_common": [row.name for row in table.rows if abs(row.asymptote[1] - table.common_asymptote) > MARGIN],
        "margin": MARGIN,
        "rows": [row_report(row) for row in table.rows],
    }


def _show_runs(answer: dict[str, Any]) -> None:
    rows = [
        (
            run["curve"],
            *(
                report.with_span(run[name], form) if run[name] else report.NOTHING
                for name, form in (("asymptote", ".3f"), ("exponent", ".2f"), ("midpoint", ".4g"))
            ),
            run["verdict"].replace("_", " "),
        )
        for run in answer["runs"]
    ]
    report.show_table(
        ("run", "A (90 %)", "B (90 %)", f"C_mid, {answer['unit']} (90 %)", "verdict"), rows, left=("verdict",)
    )
    for pair in answer["pairs"]:
        names = " and ".join(answer["runs"][pair[place]]["curve"] for place in ("first", "second"))
        say(f"{names}: {pair['verdict']}")
    for sentence in answer["cautions"]:
        say(f"caution: {sentence}")


def show_leave_one_out(answer: dict[str, Any]) -> None:
    """The table, the losses in words, and which rows not to decide on."""
    table = answer["leave_one_out"]
    header = (
        "run",
        "A (90 %)",
        "B (90 %)",
        f"B at A = {table['common_asymptote']:.3f}",
        f"compute to {table['half_way']:.3f}",
        "what was left out",
    )
    rows = [
        (
            row["curve"],
            report.with_span(row["asymptote"], ".3f"),
            report.with_span(row["exponent"], ".2f"),
            report.with_span(row["exponent_at_common"], ".2f"),
            _compute(row),
            row["kind"] or "(the whole recipe)",
        )
        for row in table["rows"]
    ]
    report.show_table(header, rows, left=header[-1:])
    for row in table["rows"][1:]:
        say(
            f"{row['curve']} against {table['baseline']}: A {_loss(row['asymptote_loss'], '.3f')}, "
            f"B at the common A {_loss(row['exponent_loss'], '.2f')}."
        )
    for sentence in cautions(answer["runs"], "its row"):
        say(f"caution: {sentence}")
    if far := table["far_from_common"]:
        say(
            f"caution: the common A of {table['common_asymptote']:.3f} is more than {table['margin']:g} off that of "
            f"{', '.join(far)}; B there is bent by it."
        )


def cautions(runs: Sequence[dict[str, Any]], what: str) -> list[str]:
    """On each run whose own verdict is not for decisions: not to decide on `what`."""
    return [
        f"{run['curve']}: verdict {run['verdict'].replace('_', ' ')}; do not decide on {what}."
        for run in runs
        if run["verdict"] not in report.FOR_DECISIONS
    ]


def _compute(row: dict[str, Any]) -> str:
    """Times that of the whole recipe; nothing where the ceiling is another."""
    if row["compute_ratio"] is None:
        return "1" if row["kind"] is None else ""
    return report.with_span(row["compute_ratio"], ".2f")


def _loss(of: report.Interval, form: str) -> str:
    """The loss as a change: what is lost is lower."""
    low, middle, high = (-float(of[name] or 0.0) for name in ("q95", "q50", "q05"))
    return f"{middle:+{form}} ({low:+{form}} to {high:+{form}})"
