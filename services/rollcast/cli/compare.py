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

NOT_COMPARED = "not compared: no law describes it, or the whole recipe"
"""In place of what the part does."""

if TYPE_CHECKING:
    from rollcast.curves.origin import Origin
    from rollcast.curves.table import Columns
    from rollcast.scaling.compare import Comparison
    from rollcast.scaling.curve import Curve, SigmoidParameters
    from rollcast.scaling.forecast import Forecast
    from rollcast.scaling.leave_one_out import LeaveOneOut, Row


@options.with_column_options
def compare(
    sources: Annotated[list[str], typer.Argument(metavar="CURVE...", help=options.CURVE_HELP)],
    *,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="curve of the whole recipe: print the leave-one-out table")
    ] = None,
    columns: options.ColumnOptions,
    pass_rate: Annotated[
        list[str] | None, typer.Option(help="column of pass rates in [0, 1]; repeatable: a curve of each")
    ] = None,
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
    from rollcast.scaling.compare import compare as compare_forecasts
    from rollcast.scaling.leave_one_out import leave_one_out
    from rollcast.scaling.posterior import fit

    report.check_plot(plot)
    wanted = list(dict.fromkeys(sources)) if pass_rate else sources
    read = _of_every_measure(wanted, columns.chosen(), pass_rate or [])
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
            else {"leave_one_out": table_report(table, forecasts)}
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
    """If no law describes one of the two runs, it has no A and no B to compare: only the sentence is given."""
    found = asdict(pair)
    without = _not_described([forecasts[pair.first], forecasts[pair.second]])
    if not without:
        return found
    empty = {name: value if name in ("first", "second") else None for name, value in found.items()}
    return empty | {"verdict": f"not compared: no law describes {' and '.join(without)}."}


def _not_described(forecasts: Sequence[Forecast]) -> list[str]:
    """Names of the curves that no law describes."""
    return [forecast.curve.name for forecast in forecasts if not forecast.verdict.kind.is_described]


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


def run_report(forecast: Forecast, held: SigmoidParameters) -> dict[str, Any]:
    """Everything that is stated about one run, as JSON; `held`: the law of its log re-plot."""
    from rollcast.curves.answer import law_as_json, law_of_curve, verdict_as_json

    curve = forecast.curve
    law = law_as_json(law_of_curve(forecast, report.MEDIAN_AND_90))
    return {
        "curve": curve.name,
        "num_points": len(curve),
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        **verdict_as_json(forecast.verdict),
        "for_decisions": forecast.verdict.kind.is_decidable,
        "compute": float(curve.compute[-1]),
        "unit": curve.unit,
        "pass_rate": float(curve.pass_rate[-1]),
        **{name: law[name] for name in ("asymptote", "exponent", "midpoint", "initial")},
        "log_replot": replot_report(forecast, held) if forecast.verdict.kind.is_described else None,
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


def table_report(table: LeaveOneOut, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The leave-one-out table as JSON; the whole recipe is the first row and has no losses.

    `forecasts`: of the rows. A row that no law describes has no numbers. If that row is the whole recipe, there is
    nothing to compare the others with, and they have no losses.
    """
    from rollcast.scaling.curve import MARGIN

    described = [forecast.verdict.kind.is_described for forecast in forecasts]
    rows = [
        _row_report(row, is_described=own, is_compared=own and described[0])
        for row, own in zip(table.rows, described, strict=True)
    ]
    far = [row.name for row in table.rows if abs(row.asymptote[1] - table.common_asymptote) > MARGIN]
    not_described = _not_described(forecasts)
    return {
        "baseline": table.rows[0].name,
        "common_asymptote": table.common_asymptote if described[0] else None,
        "half_way": table.half_way if described[0] else None,
        "far_from_common": [name for name in far if name not in not_described] if described[0] else [],
        "not_described": not_described,
        "margin": MARGIN,
        "rows": rows,
    }


def _row_report(row: Row, *, is_described: bool, is_compared: bool) -> dict[str, Any]:
    law = {"asymptote": row.asymptote, "exponent": row.exponent, "midpoint": row.midpoint}
    comparison = {
        "exponent_at_common": row.exponent_at_common,
        "asymptote_loss": row.asymptote_loss,
        "exponent_loss": row.exponent_loss,
        "compute_ratio": row.compute_ratio,
    }
    kind = None if row.kind is None else str(row.kind)
    return {
        "curve": row.name,
        "num_runs": row.num_runs,
        **{name: report.interval(values) if is_described else None for name, values in law.items()},
        **{
            name: report.interval(values) if is_compared and values is not None else None
            for name, values in comparison.items()
        },
        "kind": kind if is_compared or kind is None else NOT_COMPARED,
    }


def _show_runs(answer: dict[str, Any]) -> None:
    rows = [
        (
            run["curve"],
            *(
                _number(run[name], form)
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
    is_compared = table["common_asymptote"] is not None
    header = (
        "run",
        "A (90 %)",
        "B (90 %)",
        f"B at A = {table['common_asymptote']:.3f}" if is_compared else "B at a common A",
        f"compute to {table['half_way']:.3f}" if is_compared else "compute",
        "what was left out",
    )
    rows = [
        (
            row["curve"],
            _number(row["asymptote"], ".3f"),
            _number(row["exponent"], ".2f"),
            _number(row["exponent_at_common"], ".2f"),
            _compute(row),
            row["kind"] or "(the whole recipe)",
        )
        for row in table["rows"]
    ]
    report.show_table(header, rows, left=header[-1:])
    if table["not_described"]:
        say(f"No law describes {' and '.join(table['not_described'])}: no A, no B and no comparison is given.")
    for row in table["rows"][1:]:
        if row["asymptote_loss"] is None:
            continue
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
        if not run["is_decidable"]
    ]


def _number(of: report.Interval | None, form: str) -> str:
    return report.NO_NUMBER if of is None else report.with_span(of, form)


def _compute(row: dict[str, Any]) -> str:
    """Times that of the whole recipe; empty if the two recipes have different ceilings or are not compared."""
    if row["compute_ratio"] is None:
        return "1" if row["kind"] is None else ""
    return report.with_span(row["compute_ratio"], ".2f")


def _loss(of: report.Interval, form: str) -> str:
    """The loss as a change: what is lost is lower."""
    low, middle, high = (-float(of[name] or 0.0) for name in ("q95", "q50", "q05"))
    return f"{middle:+{form}} ({low:+{form}} to {high:+{form}})"
