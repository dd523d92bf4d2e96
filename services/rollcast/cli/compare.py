"""`rollcast compare A B ...`: which run is better, by its asymptote first, then
by its efficiency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.distinct_curves import refuse_twice, refuse_two_units, with_distinct_names
from rollcast.cli.leave_one_out_report import show_leave_one_out, table_answer
from rollcast.cli.output import say
from rollcast.cli.run_report import cautions, middle_law, not_described, number, run_report
from rollcast.config.errors import UserError

if TYPE_CHECKING:
    from rollcast.curves.columns.choices import Columns
    from rollcast.curves.evaluations import Origin
    from rollcast.scaling.decisions.compare import Comparison
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.curve import Curve


@options.with_column_options
def compare(
    sources: Annotated[list[str], typer.Argument(metavar="CURVE...", help=options.CURVE_HELP)],
    *,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="curve of the whole recipe: print the leave-one-out table"
        ),
    ] = None,
    columns: options.ColumnOptions,
    pass_rate: Annotated[
        list[str] | None,
        typer.Option(help="column of pass rates in [0, 1]; repeatable: a curve of each"),
    ] = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Compare runs pairwise: asymptote A beyond the margin of 0.02, else efficiency at the common
    A: B, and the compute that is taken half-way up.

    With --baseline every other run is one without a part of the recipe: the table says what each
    part is worth. The picture shows the curves, and how far each run has come towards its
    asymptote: a line of slope B. A file with several runs, named by its column `run`, and a
    Prometheus with several give one curve for each. So does a file of which --pass-rate names
    several columns.

    \b
    rollcast compare a.csv b.csv --plot compare.png
    rollcast compare scalerl.csv no-fp32.csv dapo-loss.csv --baseline scalerl
    rollcast compare runs.csv --compute gpu_hours --pass-rate reward --baseline scalerl
    rollcast compare run.csv --pass-rate eval/gsm8k --pass-rate eval/math
    rollcast compare a.csv b.csv c.csv --initial 0.4 --exclude-before 1500 --json
    """
    from rollcast.curves.curve_source import fit_options
    from rollcast.scaling.decisions.fit import fit

    curve_sources = list(dict.fromkeys(sources)) if pass_rate else sources
    curve_readings = _read_measures(curve_sources, columns.chosen(), pass_rate or [])
    source_curves = [(source, curve) for source, _, curve in curve_readings]
    refuse_two_units(source_curves)
    refuse_twice(source_curves, beginnings=False)
    curves = with_distinct_names(source_curves)
    origins = {
        curve.name: vars(origin)
        for (_, origin, _), curve in zip(curve_readings, curves, strict=True)
    }
    if baseline is not None:
        curves.insert(
            0, curves.pop(_find_baseline(baseline, curves, [source for source, _ in source_curves]))
        )
    try:
        forecasts = [
            fit(curve, fit_options(initial, exclude_before, law_alone=True)) for curve in curves
        ]
        answer = _pairs_answer(forecasts) if baseline is None else _table_answer(forecasts)
    except ValueError as error:
        raise UserError(str(error)) from None
    for run in answer["runs"]:
        run["source"] = origins[run["curve"]]
    report.print_answer(
        answer, _show_pairs if baseline is None else show_leave_one_out, as_json=as_json
    )
    if plot is not None:
        from rollcast.plots.comparison import draw_comparison

        draw_comparison(forecasts, answer, plot)


def _pairs_answer(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The runs and each pair of them, as JSON. Raises ValueError: there are fewer than two."""
    from rollcast.scaling.decisions.compare import compare as compare_forecasts

    pairs = compare_forecasts(forecasts)
    runs = [run_report(forecast, middle_law(forecast)) for forecast in forecasts]
    return {
        "unit": forecasts[0].curve.unit,
        "runs": runs,
        "pairs": [_pair_report(pair, forecasts) for pair in pairs],
        "cautions": cautions(runs, "its comparisons yet"),
    }


def _table_answer(forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """The runs and the leave-one-out table, as JSON; the first run is the whole recipe.

    Raises ValueError.
    """
    from rollcast.scaling.decisions.leave_one_out import leave_one_out

    answer = table_answer(leave_one_out(forecasts[0], forecasts[1:]), forecasts)
    return {
        "unit": forecasts[0].curve.unit,
        **answer,
        "cautions": cautions(answer["runs"], "its row"),
    }


def _read_measures(
    sources: Sequence[str], columns: Columns, measures: Sequence[str]
) -> list[tuple[str, Origin, Curve]]:
    """Each run of each source, for each named measure: source, origin (how it was read) and curve.

    Where several are, the measure is in the curve's name, and in that of its source.
    """
    from rollcast.curves.curve_source import read_curves

    several = len(measures) > 1
    measure_columns: list[str | None] = [*measures] or [None]
    return [
        (
            f"{source} {measure}" if several else source,
            origin,
            replace(curve, name=f"{curve.name} {measure}") if several else curve,
        )
        for source in sources
        for measure in measure_columns
        for origin, curve in read_curves(source, replace(columns, pass_rate=measure), all_runs=True)
    ]


def _pair_report(pair: Comparison, forecasts: Sequence[Forecast]) -> dict[str, Any]:
    """If no law describes one of the two runs, it has no A and no B to compare: only the sentence
    is given.
    """
    pair_fields = asdict(pair)
    without = not_described([forecasts[pair.first], forecasts[pair.second]])
    if not without:
        return pair_fields
    empty = {
        name: value if name in ("first", "second") else None for name, value in pair_fields.items()
    }
    return empty | {"verdict": f"not compared: no law describes {' and '.join(without)}."}


def _find_baseline(baseline: str, curves: Sequence[Curve], sources: Sequence[str]) -> int:
    matches = [
        index
        for index, (curve, source) in enumerate(zip(curves, sources, strict=True))
        if baseline in (curve.name, source)
    ]
    if len(matches) != 1:
        names = ", ".join(curve.name for curve in curves)
        raise UserError(
            f"--baseline {baseline}: names {len(matches)} of the curves; name one of {names}"
        )
    return matches[0]


def _show_pairs(answer: dict[str, Any]) -> None:
    report.show_columns(
        answer["runs"],
        {
            "run": lambda run: run["curve"],
            "A (90 %)": lambda run: number(run["asymptote"], ".3f"),
            "B (90 %)": lambda run: number(run["exponent"], ".2f"),
            f"C_mid, {answer['unit']} (90 %)": lambda run: number(run["midpoint"], ".4g"),
            "verdict": lambda run: run["verdict"].replace("_", " "),
        },
        text_columns=("verdict",),
    )
    for pair in answer["pairs"]:
        names = " and ".join(answer["runs"][pair[side]]["curve"] for side in ("first", "second"))
        say(f"{names}: {pair['verdict']}")
    say(
        "A, B and C_mid are those of the law alone, as `rollcast fit --law-alone` fits it, so that "
        "the runs share it."
    )
    report.say_cautions(answer["cautions"])
