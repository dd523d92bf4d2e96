"""`rollcast plan sizes SIZE=CURVE ...`: which model size for a budget, and at which budget the
choice changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.distinct_curves import refuse_two_units
from rollcast.cli.output import say
from rollcast.config.errors import UserError
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.model_size import ModelSizeLaw

PARAMETERS_PER_UNIT = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MIN_IDENTIFYING_SIZES = 3
"""Trained sizes from which the law extends to other sizes: with two the law is known at these
two only."""
MAX_LOG_LOSS_SCATTER = 0.1
"""ln L: a law with more scatter does not describe the runs. Chosen, not measured."""


@options.with_column_options
def sizes(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SIZE=CURVE...", help="as 1.7B=curve.csv; a size may recur"),
    ],
    *,
    budget: Annotated[float, typer.Option(help="compute of one run, in the unit of the curves")],
    candidate: Annotated[
        list[str] | None, typer.Option(help="further size to choose from; repeatable")
    ] = None,
    columns: options.ColumnOptions,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Choose the model size from runs of several sizes: the law ln L(N, X) = E(N) - k(N) ln X.

    \b
    rollcast plan sizes 1.7B=small.csv 8B=large.csv --budget 5000
    rollcast plan sizes 0.6B=a.csv 1.7B=b.csv 4B=c.csv --candidate 8B --budget 2e4 --plot sizes.svg
    rollcast plan sizes 1.7B=a.csv 1.7B=b.csv 8B=c.csv --budget 5000 --json
    """
    from rollcast.cli.plan.own_curves import check_budget
    from rollcast.curves.curve_source import fit_options, read_curve
    from rollcast.scaling.decisions.fit import fit

    check_budget(budget)
    parts = [_pair(source) for source in sources]
    candidate_sizes = {parse_size(text, f"--candidate {text}") for text in candidate or []}
    if len({size for size, _ in parts}) < 2:
        raise UserError("SIZE=CURVE: one size is given; give the curves of two sizes or more")
    runs: list[tuple[float, Forecast]] = []
    source_curves = [(path, read_curve(path, columns.chosen(), None)) for _, path in parts]
    refuse_two_units(source_curves)
    for (size, path), (_, curve) in zip(parts, source_curves, strict=True):
        try:
            runs.append((size, fit(curve, fit_options(None, exclude_before, law_alone=True))))
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
    runs.sort(key=lambda pair: pair[0])
    law = fit_law(drop_broken_runs(runs))
    answer = choice(runs, law, sorted(candidate_sizes | {size for size, _ in runs}), budget)
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.cli.plan.plot import draw_sizes

        draw_sizes(runs, law, answer, plot)


def parse_size(text: str, source: str) -> float:
    """Parameters from 1.7B, 600M, 8e9. Raises UserError."""
    size_match = re.fullmatch(
        r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([KMBT]?)", text.strip(), re.IGNORECASE
    )
    size = float(size_match[1]) * PARAMETERS_PER_UNIT[size_match[2].upper()] if size_match else 0.0
    if not 0 < size <= 1e18:
        raise UserError(
            f"{source}: {text!r} is no model size; write parameters as 1.7B, 600M or 8e9"
        )
    return size


def size_name(size: float) -> str:
    """1700000000 -> 1.7B."""
    unit = next((unit for unit in ("T", "B", "M", "K") if size >= PARAMETERS_PER_UNIT[unit]), "")
    return f"{size / PARAMETERS_PER_UNIT[unit]:.4g}{unit}"


def _pair(source: str) -> tuple[float, str]:
    size, separator, path = source.partition("=")
    if not separator or not path:
        raise UserError(
            f"SIZE=CURVE {source!r}: needs a model size and its curve, as 1.7B=curve.csv"
        )
    return parse_size(size, f"SIZE=CURVE {source!r}"), path


def drop_broken_runs(runs: list[tuple[float, Forecast]]) -> list[tuple[float, Forecast]]:
    """The runs without those that broke or fell, whose points would mislead the law; all, if too
    few are left.
    """
    described_runs = [pair for pair in runs if pair[1].verdict.kind.is_described]
    return described_runs if len({size for size, _ in described_runs}) > 1 else runs


def unfit(runs: list[tuple[float, Forecast]], law: ModelSizeLaw) -> str | None:
    """Why no size can be recommended by the law, or None."""
    if len({size for size, forecast in runs if forecast.verdict.kind.is_described}) < 2:
        return "fewer than two sizes have a run that neither broke nor fell"
    if (scatter := _scatter(law)) > MAX_LOG_LOSS_SCATTER:
        return (
            f"the points scatter by {scatter:.0%} of the loss about the law, which does not "
            "describe these runs"
        )
    return None


def fit_law(runs: list[tuple[float, Forecast]]) -> ModelSizeLaw:
    """The law across sizes from the points of all runs, without each run's first phase.

    Raises UserError.
    """
    from rollcast.scaling.law.model_size import fit_model_size

    size: list[float] = []
    compute: list[float] = []
    pass_rate: list[float] = []
    for number, forecast in runs:
        curve = forecast.curve
        first = forecast.excluded
        size += [number] * (len(curve) - first)
        compute += curve.compute[first:].tolist()
        pass_rate += curve.pass_rate[first:].tolist()
    try:
        return fit_model_size(size, compute, pass_rate)
    except ValueError as error:
        raise UserError(f"SIZE=CURVE: {error}") from None


def choice(
    runs: list[tuple[float, Forecast]], law: ModelSizeLaw, candidates: list[float], budget: float
) -> dict[str, Any]:
    """The recommended size, the others, and the budgets at which the choice changes, as JSON.

    `runs` and `candidates` ascend.
    """
    from rollcast.cli.plan.own_curves import draws_interval
    from rollcast.scaling.decisions.size_choice import size_changes

    compute_bounds = [
        float(forecast.curve.compute[index]) for _, forecast in runs for index in (0, -1)
    ]
    best, wins = law.best_size(candidates, budget)
    low = min(*compute_bounds, budget)
    high = 10 * max(*compute_bounds, budget)
    rows = []
    for size, best_with in zip(candidates, wins.tolist(), strict=True):
        own_forecasts = [forecast for number, forecast in runs if number == size]
        rows.append(_size(size, own_forecasts, law, budget, best_with))
    changes = [
        {
            "from": size_name(candidates[change.smaller]),
            "to": size_name(candidates[change.larger]),
            "compute": amounts.interval(change.budget),
            "beyond_what_was_seen": change.budget[1] > max(compute_bounds),
        }
        for change in size_changes(law, candidates, low, high)
    ]
    why_not = unfit(runs, law)
    return {
        "unit": runs[0][1].curve.unit,
        "budget": budget,
        "recommended": size_name(candidates[best]) if why_not is None else None,
        "probability": float(wins[best]) if why_not is None else None,
        "unfit": why_not,
        "sizes": rows,
        "changes": changes,
        "searched": [low, high],
        "law": {
            "efficiency_max": draws_interval(law.efficiency),
            "saturation_size": draws_interval(law.saturation),
            "size_slope": draws_interval(law.size_slope),
            "scatter": draws_interval(law.noise),
        },
        "identified": len({size for size, _ in runs}) >= MIN_IDENTIFYING_SIZES,
        "caveats": caveats(runs, law, rows, budget),
    }


def _size(
    size: float, forecasts: list[Forecast], law: ModelSizeLaw, budget: float, best_with: float
) -> dict[str, Any]:
    """One size: by the law, and by the curves of its own runs."""
    from rollcast.cli.plan.own_curves import own_curve

    return {
        "size": size,
        "name": size_name(size),
        "trained": bool(forecasts),
        "num_points": sum(len(forecast.curve) - forecast.excluded for forecast in forecasts),
        "pass_rate": amounts.interval(law.pass_rate(size, [budget], amounts.MEDIAN_AND_90)[:, 0]),
        "own_curves": [own_curve(forecast.curve.name, forecast, budget) for forecast in forecasts],
        "best_with": best_with,
    }


def caveats(
    runs: list[tuple[float, Forecast]], law: ModelSizeLaw, rows: list[dict[str, Any]], budget: float
) -> list[str]:
    """Warnings about effects that the intervals do not account for."""
    from rollcast.cli.plan.own_curves import disagreements

    trained = sorted({size for size, _ in runs})
    warnings = []
    if len(trained) < MIN_IDENTIFYING_SIZES:
        warnings.append(
            f"The law is not identified by {len(trained)} sizes: it holds at these only, others "
            "are guessed; train a third size."
        )
    outside = [row["name"] for row in rows if not trained[0] <= row["size"] <= trained[-1]]
    if outside:
        warnings.append(
            f"{', '.join(outside)}: outside of the sizes trained, an extrapolation of the law."
        )
    longest = max(float(forecast.curve.compute[-1]) for _, forecast in runs)
    # Times the largest compute seen: a budget beyond that is called an extrapolation far out.
    # Chosen, not measured.
    if budget > 3.0 * longest:
        warnings.append(
            f"The budget is {budget / longest:.1f} times the longest curve; the loss of a run "
            "stops falling as a power near its asymptote."
        )
    if (scatter := _scatter(law)) > MAX_LOG_LOSS_SCATTER:
        warnings.append(
            f"The points scatter by {scatter:.0%} of the loss about the law: it does not describe "
            "these runs."
        )
    for row in rows:
        warnings += [
            f"{fit['curve']} ({row['name']}): verdict {fit['verdict'].replace('_', ' ')}; its "
            "points would mislead the law and are left out of it."
            for fit in row["own_curves"]
            if not fit["is_described"]
        ]
        warnings += disagreements(row, "the law across sizes")
    if len(runs) == len(trained):
        warnings.append(
            "One run per size: the spread between runs of one size is not in the intervals."
        )
    return warnings


def _scatter(law: ModelSizeLaw) -> float:
    """Scatter of the points about the law, in ln L."""
    import numpy as np

    return float(np.quantile(law.noise, 0.5))


def _show(answer: dict[str, Any]) -> None:
    from rollcast.cli.plan.own_curves import law_columns
    from rollcast.scaling.decisions.advice_words import chance_in_words

    report.show_columns(
        answer["sizes"],
        {
            "size": lambda row: row["name"],
            "points": lambda row: str(row["num_points"]),
            **law_columns(answer["budget"]),
            "best with": lambda row: chance_in_words(row["best_with"]),
        },
    )
    _show_choice(answer)
    report.say_cautions(answer["caveats"])


def _show_choice(answer: dict[str, Any]) -> None:
    from rollcast.scaling.decisions.advice_words import chance_in_words

    unit = answer["unit"]
    budget_text = amounts.amount(answer["budget"])
    if answer["recommended"] is None:
        say(f"At {budget_text} {unit}: no size is recommended, since {answer['unfit']}.")
        return
    name = answer["recommended"]
    chance = answer["probability"]
    # Probability to be the best from which a size is recommended without reserve
    reservation = "." if chance >= 0.9 else "; the runs do not separate the sizes there."
    say(
        f"At {budget_text} {unit}: {name}, the best with probability "
        f"{chance_in_words(chance)}{reservation}"
    )
    for change in answer["changes"]:
        beyond = ", beyond the compute seen" if change["beyond_what_was_seen"] else ""
        say(
            f"From {amounts.amount(change['compute']['q50'])} {unit} on (90 % "
            f"{amounts.span(change['compute'])}"
            f"{beyond}): {change['to']} instead of {change['from']}."
        )
    if not answer["changes"]:
        low, high = (amounts.amount(value) for value in answer["searched"])
        say(f"The choice does not change from {low} to {high} {unit}.")
