"""`rollcast plan budget CURVE`: what a budget buys, and what a target costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.output import say
from rollcast.config.bounds import MOST_COMPUTE
from rollcast.config.errors import UserError
from rollcast.curves import amounts
from rollcast.plots.figure import save

if TYPE_CHECKING:
    from rollcast.curves.run_forecast import RunForecast
    from rollcast.scaling.decisions.advice import Advice


@options.with_column_options
def budget(
    source: Annotated[str, typer.Argument(metavar="CURVE", help=options.CURVE_HELP)],
    *,
    budget: Annotated[
        float | None,
        typer.Option(
            help="compute of the whole run in the unit of the curve, spent compute included"
        ),
    ] = None,
    target: Annotated[float | None, typer.Option(help="pass rate to reach")] = None,
    columns: options.ColumnOptions,
    run: options.Run = None,
    initial: options.Initial = None,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Say what to expect of a budget, or for a target; each number with its 90 % interval.

    \b
    rollcast plan budget curve.csv --budget 5000
    rollcast plan budget runs/demo/evaluations.jsonl --target 0.8 --json
    rollcast plan budget curve.csv --budget 5000 --target 0.7 --plot plan.svg
    """
    from rollcast.curves.curve_source import forecast_source

    if budget is None and target is None:
        raise UserError(
            "--budget, --target: neither is given; give the compute to spend or the pass rate to "
            "reach"
        )
    if target is not None and not 0 <= target <= 1:
        raise UserError(f"--target {target:g}: is no pass rate; give a value in [0, 1]")
    forecast = forecast_source(source, columns.chosen(), run, initial, exclude_before)
    compute = forecast.newest.compute
    if budget is not None and not compute <= budget <= MOST_COMPUTE:
        raise UserError(
            f"--budget {budget:g}: the curve is at {compute:g} {forecast.unit}; give those of the "
            "whole run, up to 1e12"
        )
    answer = expectations(forecast, budget, target)
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.plots.forecast import forecast_figure

        advice = forecast.advice(budget)
        save(
            forecast_figure(forecast, advice, until=_shown_until(answer, advice), target=target),
            plot,
        )


def expectations(run: RunForecast, budget: float | None, target: float | None) -> dict[str, Any]:
    """The whole answer as JSON. `budget`: compute of the whole run, `target` a pass rate."""
    from rollcast.curves.answer import law_as_json, law_of_run, readings_at, state_as_json

    forecast = run.forecast
    draws = forecast.draws
    law = law_as_json(law_of_run(run, amounts.MEDIAN_AND_90))
    is_described = forecast.verdict.is_described
    of_law: dict[str, Any]
    answer: dict[str, Any] = {
        **state_as_json(run),
        "for_decisions": forecast.verdict.kind.is_decidable,
        "asymptote": law["asymptote"],
        "headroom": law["headroom"],
        "ceiling_probability": law["ceiling_probability"],
    }
    if budget is not None:
        mean, low, high = run.expected_gain(budget)
        of_law = {
            "law": amounts.interval(run.law([budget], amounts.MEDIAN_AND_90)[:, 0]),
            "gain": {"mean": mean, "q05": low, "q95": high},
        }
        answer["budget"] = {
            "compute": budget,
            "reading": readings_at(run, [budget], amounts.MEDIAN_AND_90)[0],
            **(of_law if is_described else dict.fromkeys(of_law)),
        }
    if target is not None:
        first = draws.compute_to(target)
        of_law = {
            "compute": amounts.interval(run.compute_to_target(target, amounts.MEDIAN_AND_90)),
            "probability_ever": float((first < float("inf")).mean()),
        }
        if budget is not None:
            of_law["probability_within_budget"] = float(
                (first <= run.to_fitted([budget])[0]).mean()
            )
        answer["target"] = {
            "pass_rate": target,
            **(of_law if is_described else dict.fromkeys(of_law)),
        }
    return answer


def _shown_until(answer: dict[str, Any], advice: Advice) -> float:
    """The end of the picture: the budget, or without one the compute that the target takes if that
    is further.
    """
    target_compute = (
        answer["target"]["compute"] if advice.is_assumed and "target" in answer else None
    )
    reached = None if target_compute is None else target_compute["q50"]
    return max(advice.budget, min(reached or 0.0, MOST_COMPUTE))


def conclusions(answer: dict[str, Any]) -> list[str]:
    """The answer in words."""
    from rollcast.scaling.decisions.advice_words import chance_in_words

    sentences = []
    if (spent := answer.get("budget")) is not None and spent["reading"]["q50"] is not None:
        rest_compute = spent["compute"] - answer["compute"]
        gain = spent["gain"]
        at_the_end = f"{spent['reading']['q50']:.3f} ({amounts.span(spent['reading'], '.3f')})"
        if gain is None:
            sentences.append(f"An evaluation at the end reads {at_the_end}; no gain can be given.")
        else:
            sentences.append(
                f"The remaining {amounts.amount(rest_compute)} {answer['unit']} gain "
                f"{gain['mean']:.3f} on average (90 % {gain['q05']:.3f} to {gain['q95']:.3f}); an "
                f"evaluation at the end reads {at_the_end}."
            )
        sentences += _above_the_ceiling(answer, spent["law"])
    if (target := answer.get("target")) is not None and target["compute"] is not None:
        middle = target["compute"]["q50"]
        cost = (
            "is more likely never reached"
            if middle is None
            else f"takes {amounts.amount(middle)} {answer['unit']}"
        )
        sentence = (
            f"{target['pass_rate']:g} {cost} (90 % {amounts.span(target['compute'])}); it is "
            f"reached at some time with probability {chance_in_words(target['probability_ever'])}"
        )
        if "probability_within_budget" in target:
            sentence += (
                f", within the budget with {chance_in_words(target['probability_within_budget'])}"
            )
        sentences.append(f"{sentence}.")
    if not answer["for_decisions"] and sentences:
        sentences.append(
            f"Verdict {answer['verdict'].replace('_', ' ')}: do not decide on these numbers yet."
        )
    return sentences


def _above_the_ceiling(answer: dict[str, Any], law: amounts.Interval | None) -> list[str]:
    """Why the law at the end may lie above A: that is the ceiling of the trajectories that have
    one.
    """
    if law is None or law["q50"] <= answer["asymptote"]["q50"]:
        return []
    return [
        "The law at the end lies above A, because gains end with a probability of "
        f"{answer['ceiling_probability']:.0%} only: A is the ceiling if they do."
    ]


def _show(answer: dict[str, Any]) -> None:
    report.show_verdict(answer)
    rows = [
        ("asymptote A", answer["asymptote"], ".3f"),
        ("headroom A - level now", answer["headroom"], ".3f"),
    ]
    if (spent := answer.get("budget")) is not None:
        budget_text = amounts.amount(spent["compute"])
        reading = spent["reading"] if spent["reading"]["q50"] is not None else None
        rows += [
            (f"reading at {budget_text}", reading, ".3f"),
            (f"law at {budget_text}", spent["law"], ".3f"),
        ]
    if (target := answer.get("target")) is not None:
        rows.append((f"{answer['unit']} to {target['pass_rate']:g}", target["compute"], ".4g"))
    report.show_quantiles(rows)
    for sentence in conclusions(answer):
        say(sentence)
