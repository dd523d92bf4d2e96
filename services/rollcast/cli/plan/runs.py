"""`rollcast plan runs CURVE...`: which of several runs to stop, which to continue, and what each
choice loses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.distinct_curves import refuse_twice, refuse_two_units, with_distinct_names
from rollcast.cli.run_report import number
from rollcast.config.errors import UserError
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.scaling.decisions.allocation import Allocation, Choice, Outlook, Spread
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.curve import Curve

REMEDIES = {
    "too_few": "plan again when it has enough evaluations",
    "no_learning": "another learning rate or other data would be another run",
    "broken": "go back to the named checkpoint",
    "not_sigmoid": "look at truncation, entropy, the data",
    "regime_change": (
        "before you stop it for good, look at why, or plan again with its points from there on"
    ),
}
"""Advice for a run that no law describes, by its verdict."""


@options.with_column_options
def runs(
    sources: Annotated[list[str], typer.Argument(metavar="CURVE...", help=options.CURVE_HELP)],
    *,
    budget: Annotated[
        float, typer.Option(help="further compute of all runs together, in the unit of the curves")
    ],
    least_gain: Annotated[
        float, typer.Option(help="stop all if the budget gains less (95 %)")
    ] = 0.01,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN=HOURS", help="device-hours in a unit of its compute, as a=8; repeatable"
        ),
    ] = None,
    columns: options.ColumnOptions,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Share a budget among runs: which to stop, which to continue, with the expected loss of each
    choice.

    Only the best run at the end counts. Runs that continue get equal parts of the budget; a stopped
    run keeps its pass rate. A file with several runs, by its column `run`, and a Prometheus with
    several give one curve for each.

    \b
    rollcast plan runs a.csv b.csv c.csv --budget 5000
    rollcast plan runs runs.csv --compute gpu_hours --pass-rate reward --budget 5000 --plot runs.svg
    rollcast plan runs a.csv b.csv --budget 800 --unit b=0.5 --json
    """
    from rollcast.cli.plan.own_curves import check_budget
    from rollcast.curves.curve_source import fit_options, read_curves
    from rollcast.scaling.decisions.allocation import allocate
    from rollcast.scaling.decisions.fit import fit

    check_budget(budget)
    if not 0 <= least_gain <= 1:
        raise UserError(f"--least-gain {least_gain:g}: is no pass rate; give a value in [0, 1]")
    source_curves = [
        (source, curve)
        for source in sources
        for _, curve in read_curves(source, columns.chosen(), all_runs=True)
    ]
    refuse_twice(source_curves, beginnings=True)
    curves = in_device_hours(with_distinct_names(source_curves), unit or [])
    refuse_two_units([(curve.name, curve) for curve in curves])
    try:
        forecasts = [fit(curve, fit_options(initial, exclude_before)) for curve in curves]
    except ValueError as error:
        raise UserError(str(error)) from None
    allocation = allocate(forecasts, budget, least_gain)
    answer = make_runs_answer(forecasts, allocation)
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.cli.plan.plot import draw_runs

        draw_runs(forecasts, answer, plot)


def in_device_hours(curves: Sequence[Curve], units: Sequence[str]) -> list[Curve]:
    """`units`: RUN=HOURS, by name. Raises UserError."""
    from rollcast.scaling.law.curve import DEVICE_HOURS

    factors: dict[str, float] = {}
    names = [curve.name for curve in curves]
    for text in units:
        name, _, hours = text.rpartition("=")
        try:
            factor = float(hours)
        except ValueError:
            factor = math.nan
        if name not in names:
            raise UserError(
                f"--unit {text}: no run has this name; give one of {', '.join(names)} as RUN=HOURS"
            )
        if name in factors or not 1e-6 <= factor <= 1e6:
            raise UserError(
                f"--unit {text}: give each run's device-hours in one unit once, from 1e-6 to 1e6"
            )
        factors[name] = factor
    converted = []
    for curve in curves:
        if curve.name in factors:
            curve = replace(curve, compute=curve.compute * factors[curve.name], unit=DEVICE_HOURS)
        converted.append(curve)
    return converted


def make_runs_answer(forecasts: Sequence[Forecast], allocation: Allocation) -> dict[str, Any]:
    """The whole answer as JSON."""
    names = [forecast.curve.name for forecast in forecasts]
    unit = forecasts[0].curve.unit
    rows = [_run(*pair) for pair in zip(forecasts, allocation.runs, strict=True)]
    choices = [_choice(choice, names) for choice in allocation.choices]
    recommended = choices[allocation.choices.index(allocation.recommended)]
    return {
        "unit": unit,
        "budget": allocation.budget,
        "least_gain": allocation.least_gain,
        "recommendation": recommendation(rows, choices, recommended, allocation.least_gain, unit),
        "recommended": recommended,
        "runs": rows,
        "choices": choices,
        "cautions": cautions(rows, unit),
    }


def _run(forecast: Forecast, outlook: Outlook) -> dict[str, Any]:
    from rollcast.curves.answer import law_as_json, law_of_curve

    curve = forecast.curve
    law = law_as_json(law_of_curve(forecast, amounts.MEDIAN_AND_90))
    return {
        "run": curve.name,
        "num_points": len(curve) + curve.num_at_start,
        "num_at_start": curve.num_at_start,
        "dropped": curve.dropped,
        "excluded": forecast.excluded,
        "verdict": str(outlook.verdict),
        "reason": forecast.verdict.reason,
        "for_decisions": outlook.verdict.is_decidable,
        "has_forecast": outlook.has_forecast,
        "compute": float(curve.compute[-1]),
        "pass_rate": float(curve.pass_rate[-1]),
        "now": _spread(outlook.present_pass_rate),
        "asymptote": law["asymptote"],
        "hours": outlook.hours,
        "gain": _spread(outlook.gain),
        "gain_alone": _spread(outlook.gain_alone),
        "stop_loss": outlook.stop_loss,
        "alone_loss": outlook.alone_loss,
    }


def _choice(choice: Choice, names: Sequence[str]) -> dict[str, Any]:
    return {
        "name": choice_name(choice, names),
        "continued": [names[run] for run in choice.continued],
        "stopped": [names[run] for run in choice.stopped],
        "hours": choice.hours,
        "saved": choice.saved,
        "best": _spread(choice.best),
        "expected_loss": choice.expected_loss,
        "loss_upper": choice.loss_upper,
        "best_probability": dict(zip(names, choice.best_probability, strict=True)),
    }


def _spread(spread: Spread) -> dict[str, float]:
    return dict(zip(("mean", "q05", "q95"), spread, strict=True))


def choice_name(choice: Choice, names: Sequence[str]) -> str:
    """The runs that continue, in the fewest words."""
    if not choice.continued:
        return "none"
    if not choice.stopped:
        return "all" if len(names) > 1 else names[0]
    if len(choice.stopped) < len(choice.continued):
        return f"all except {join_names([names[run] for run in choice.stopped])}"
    return join_names([names[run] for run in choice.continued])


def join_names(names: Sequence[str]) -> str:
    """a, b and c; of many the first ones and how many more."""
    # Runs that a sentence names; of more it names five and the number of the others.
    max_named_runs = 6
    if len(names) > max_named_runs:
        names = [*names[: max_named_runs - 1], f"{len(names) - max_named_runs + 1} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def recommendation(
    rows: Sequence[dict[str, Any]],
    choices: Sequence[dict[str, Any]],
    recommended: dict[str, Any],
    least_gain: float,
    unit: str,
) -> str:
    """The recommended choice and its expected gain, in one sentence."""
    nothing = choices[-1]
    best = recommended["best"]
    hours = amounts.amount(nothing["saved"])
    current_rate = nothing["best"]["mean"]
    runs_with_forecast = [row["run"] for row in rows if row["has_forecast"]]
    runs_without_forecast = [row["run"] for row in rows if not row["has_forecast"]]
    if not runs_with_forecast:
        verb = "has" if len(runs_without_forecast) == 1 else "have"
        return (
            f"Spend nothing yet: {join_names(runs_without_forecast)} {verb} no law to plan with; "
            "see why below."
        )
    aside = f", set {join_names(runs_without_forecast)} aside" if runs_without_forecast else ""
    if recommended is nothing:
        return (
            f"Stop {join_names(runs_with_forecast)}{aside}: with 95 % the {hours} {unit} gain "
            f"at most {nothing['loss_upper']:.3f}, "
            f"less than {least_gain:g}; the best run has {current_rate:.3f} now."
        )
    count = len(recommended["continued"])
    budget_share = (
        f"{amounts.amount(recommended['hours'])} {unit} each"
        if count > 1
        else f"all {hours} {unit}"
    )
    stopped_runs = [name for name in runs_with_forecast if name not in recommended["continued"]]
    stop = f", stop {join_names(stopped_runs)}" if stopped_runs else ""
    sentence = f"Continue {join_names(recommended['continued'])} with {budget_share}{stop}{aside}"
    sentence += (
        f": the best run is expected to end at {best['mean']:.3f} (90 % {best['q05']:.3f} to "
        f"{best['q95']:.3f}), {best['mean'] - current_rate:.3f} above the best now"
    )
    other_choices = [choice for choice in choices[:-1] if choice is not recommended]
    if other_choices:
        second = min(other_choices, key=lambda choice: float(choice["expected_loss"]))
        loss_difference = second["expected_loss"] - recommended["expected_loss"]
        lower = f"{loss_difference:.3f} lower" if loss_difference >= 0.0005 else "as high"
        sentence += f"; the next best choice, to continue {second['name']}, ends {lower}"
    return f"{sentence}."


def cautions(rows: Sequence[dict[str, Any]], unit: str) -> list[str]:
    """Warnings about effects that the figures do not account for."""
    warnings = []
    early = [row for row in rows if row["verdict"] == "too_early"]
    for early_runs, remedy in (
        ([row["run"] for row in early if row["hours"]], "ask again before that budget is spent"),
        (
            [row["run"] for row in early if not row["hours"]],
            "stop nothing for good before its curve has bent",
        ),
    ):
        if early_runs:
            warnings.append(
                f"{join_names(early_runs)}: verdict too early, so the gain depends mostly on the "
                f"prior; {remedy}."
            )
    for row in rows:
        if not row["has_forecast"]:
            remedy = REMEDIES[row["verdict"]]
            warnings.append(
                f"{row['run']}: verdict {row['verdict'].replace('_', ' ')}. {row['reason']} It "
                "counts with its last "
                f"readings ({row['now']['mean']:.3f}) and gets nothing; {remedy}."
            )
        # An end beyond three times the compute so far is called an extrapolation far out; `hours`
        # are still to come
        elif row["hours"] > 2.0 * row["compute"]:
            times = (row["compute"] + row["hours"]) / row["compute"]
            warnings.append(
                f"{row['run']}: ends at {times:.3g} times its compute so far, an extrapolation far "
                "out."
            )
    shortest_run = min(rows, key=lambda row: float(row["compute"]))
    longest_run = max(rows, key=lambda row: float(row["compute"]))
    # Ratio of the computes of two runs from which they may count in different units
    if longest_run["compute"] > 100.0 * shortest_run["compute"]:
        warnings.append(
            f"{longest_run['run']} is at {amounts.amount(longest_run['compute'])} {unit} and "
            f"{shortest_run['run']} at {amounts.amount(shortest_run['compute'])}; if one counts in "
            "another unit, say so with --unit RUN=HOURS."
        )
    if len(rows) == 1:
        warnings.append("One run is given; `rollcast plan budget` says more about it.")
    return warnings


def _show(answer: dict[str, Any]) -> None:
    alone = f"gain of {amounts.amount(answer['budget'])} alone"
    report.show_columns(
        answer["runs"],
        {
            "run": lambda row: row["run"],
            "now": lambda row: f"{row['now']['mean']:.3f}",
            "A (90 %)": lambda row: number(row["asymptote"], ".3f"),
            "verdict": lambda row: row["verdict"].replace("_", " "),
            "gets": lambda row: amounts.amount(row["hours"]),
            "gain": lambda row: f"{row['gain']['mean']:.3f}",
            alone: lambda row: f"{row['gain_alone']['mean']:.3f}" if row["has_forecast"] else "-",
            "loss if stopped": lambda row: f"{row['stop_loss']:.3f}",
            "loss if alone": lambda row: f"{row['alone_loss']:.3f}" if row["has_forecast"] else "-",
        },
        text_columns=("verdict",),
    )
    typer.echo()
    report.show_columns(
        answer["choices"],
        {
            "continue": lambda choice: choice["name"],
            "each gets": lambda choice: amounts.amount(choice["hours"]),
            "best run ends at": lambda choice: f"{choice['best']['mean']:.3f}",
            "90 %": lambda choice: f"{choice['best']['q05']:.3f} to {choice['best']['q95']:.3f}",
            "expected loss": lambda choice: f"{choice['expected_loss']:.3f}",
            "at most (95 %)": lambda choice: f"{choice['loss_upper']:.3f}",
        },
    )
    typer.echo(f"\n{answer['recommendation']}")
    report.say_cautions(answer["cautions"])
