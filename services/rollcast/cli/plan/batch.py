"""`rollcast plan batch NAME=SOURCE ...`: how to split a fixed compute into rollouts, prompts and
steps.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rollcast.cli import curve_options as options
from rollcast.cli import report
from rollcast.cli.distinct_curves import refuse_two_units
from rollcast.cli.output import say
from rollcast.config.errors import UserError
from rollcast.curves import amounts

if TYPE_CHECKING:
    from rollcast.cli.plan.batch_runs import BatchRun
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.batch_shape import BatchShape


@options.with_column_options
def batch(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="NAME=SOURCE...", help="as a=curve.csv; a run folder needs no name"),
    ],
    *,
    budget: Annotated[float, typer.Option(help="compute of one run, in the unit of the curves")],
    rollouts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=8", help="rollouts_per_prompt of a run without a run file; repeatable"
        ),
    ] = None,
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=64",
            help="prompts_per_step of such a run; a number alone is for all; repeatable",
        ),
    ] = None,
    candidate: Annotated[
        list[str] | None,
        typer.Option(metavar="16x64", help="further split to choose from; repeatable"),
    ] = None,
    columns: options.ColumnOptions,
    exclude_before: options.ExcludeBefore = None,
    as_json: options.AsJson = False,
    plot: report.Plot = None,
) -> None:
    """Choose rollouts per prompt, prompts per step and steps for a fixed compute, from runs that
    differ in them.

    A split is written as rollouts x prompts. Each run is forecast to the budget, and the law across
    splits compares them there. Curves that count steps are counted in rollouts. The answer names
    the run that is missing to decide.

    \b
    rollcast plan batch runs/small runs/large --budget 40
    rollcast plan batch a=a.csv b=b.csv --rollouts a=8 --rollouts b=32 --prompts 64 --budget 5e6 --plot batch.svg
    rollcast plan batch runs/small runs/large --budget 40 --candidate 64x16 --json
    """  # noqa: E501
    from rollcast.cli.plan.batch_answer import BatchPlan, make_batch_answer
    from rollcast.cli.plan.batch_runs import read_runs, refuse_one_run_twice
    from rollcast.cli.plan.own_curves import check_budget

    check_budget(budget)
    candidate_shapes = [parse_batch_shape(text) for text in candidate or []]
    runs = read_runs(sources, columns.chosen(), rollouts or [], prompts or [])
    refuse_one_run_twice(runs)
    refuse_two_units([(run.name, run.curve) for run in runs])
    plan = BatchPlan(runs, [_forecast(run, exclude_before) for run in runs])
    answer = make_batch_answer(plan, candidate_shapes, budget)
    report.print_answer(answer, _show, as_json=as_json)
    if plot is not None:
        from rollcast.cli.plan.plot_batch import draw_batch

        draw_batch(plan.forecasts, answer, plot)


def parse_batch_shape(text: str) -> BatchShape:
    """16x64 -> 16 rollouts of each of 64 prompts. Raises UserError."""
    from rollcast.scaling.law.batch_shape import BatchShape

    shape_match = re.fullmatch(r"(\d{1,6})\s*x\s*(\d{1,6})", text.strip())
    if shape_match is None or int(shape_match[1]) < 2 or int(shape_match[2]) < 1:
        raise UserError(
            f"--candidate {text}: is no split; write rollouts (2 or more) x prompts, as 16x64"
        )
    return BatchShape(int(shape_match[1]), int(shape_match[2]))


def _forecast(run: BatchRun, exclude_before: float | None) -> Forecast:
    from rollcast.curves.curve_source import fit_options
    from rollcast.scaling.decisions.fit import fit

    try:
        return fit(run.curve, fit_options(None, exclude_before))
    except ValueError as error:
        raise UserError(f"{run.name}: {error}") from None


def _show(answer: dict[str, Any]) -> None:
    from rollcast.cli.plan.own_curves import law_columns
    from rollcast.scaling.decisions.advice_words import chance_in_words

    def unless_unknown(name: str, in_words: Callable[[Any], str]) -> report.Cell:
        return lambda row: report.NO_NUMBER if row[name] is None else in_words(row[name])

    report.show_columns(
        answer["splits"],
        {
            "rollouts x prompts": lambda row: row["name"],
            "steps": unless_unknown("steps", lambda steps: amounts.amount(steps, ".0f")),
            **law_columns(answer["budget"]),
            "best with": unless_unknown("best_with", chance_in_words),
            "expected loss": unless_unknown("expected_loss", lambda loss: f"{loss:.3f}"),
        },
    )
    _show_choice(answer)
    report.say_cautions(answer["caveats"])


def _show_choice(answer: dict[str, Any]) -> None:
    from rollcast.scaling.decisions.advice_words import chance_in_words

    budget_text = f"{amounts.amount(answer['budget'])} {answer['unit']}"
    best = answer["recommended"]
    if best is None:
        say(f"At {budget_text}: no split is recommended, since {answer['unfit']}.")
    else:
        steps = (
            ""
            if best["steps"] is None
            else f" for about {amounts.amount(best['steps'], '.0f')} steps"
        )
        # Probability to be the best from which a split is recommended without reserve
        reservation = (
            "" if answer["probability"] >= 0.9 else "; the runs do not separate the splits there"
        )
        say(
            f"At {budget_text}: {best['rollouts_per_prompt']} rollouts of "
            f"{best['prompts_per_step']} prompts{steps}, the best with probability "
            f"{chance_in_words(answer['probability'])}, expected loss "
            f"{answer['expected_loss']:.3f}{reservation}."
        )
        say(f"With other budgets: {_budgets_in_words(answer['budgets'])}.")
    next_run = answer["missing"]
    if next_run is None:
        say("No further run would improve the choice by 0.001.")
    else:
        say(
            f"Missing: a run of {next_run['rollouts_per_prompt']} rollouts of "
            f"{next_run['prompts_per_step']} prompts, "
            f"{next_run['why']}; the choice after it is expected to gain {next_run['value']:.3f}."
        )


def _budgets_in_words(budgets: Sequence[dict[str, Any]]) -> str:
    from rollcast.scaling.decisions.advice_words import chance_in_words

    return ", ".join(
        f"{choice['recommended']} at {amounts.amount(choice['budget'])} "
        f"({chance_in_words(choice['probability'])})"
        for choice in budgets
    )
