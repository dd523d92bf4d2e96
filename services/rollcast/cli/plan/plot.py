"""Pictures of plans, as PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.curves.amounts import amount
from rollcast.plots.figure import (
    COLOURS,
    GREY,
    INK,
    MARKERS,
    MOST_LABELLED,
    legend_below,
    look_of_run,
    new_figure,
    save,
    write_heading,
)
from rollcast.scaling.decisions.advice_words import chance_in_words

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast
    from rollcast.scaling.law.model_size import ModelSizeLaw
    from rollcast.simulation.split import SplitSearch


def draw_sizes(
    runs: list[tuple[float, Forecast]], law: ModelSizeLaw, answer: dict[str, Any], path: Path
) -> None:
    """Draw points of every run, the law of every size with its 90 % band, the budget, changes of
    the choice, cautions.

    Raises UserError if the file cannot be written.
    """
    figure = new_figure((9, 4.4))
    axes = figure.add_subplot()
    first = min(float(forecast.curve.compute[0]) for _, forecast in runs)
    last = max(answer["budget"], *(float(forecast.curve.compute[-1]) for _, forecast in runs))
    compute = np.geomspace(first, last * 1.5, 200)
    for index, row in enumerate(answer["sizes"]):
        colour = COLOURS[index % len(COLOURS)]
        low, middle, high = law.pass_rate(row["size"], compute)
        axes.fill_between(compute, low, high, color=colour, alpha=0.12, lw=0)
        name = row["name"] if row["trained"] else f"{row['name']}, not trained"
        axes.plot(compute, middle, color=colour, ls="-" if row["trained"] else "--", label=name)
        marker = MARKERS[index % len(MARKERS)]
        for curve in (forecast.curve for size, forecast in runs if size == row["size"]):
            axes.plot(curve.compute, curve.pass_rate, marker, ms=3.5, color=colour)
    _draw_changes(axes, answer["changes"], first, float(compute[-1]))
    budget_text = f"{amount(answer['budget'])} {answer['unit']}"
    axes.axvline(answer["budget"], color=INK, lw=1.2, ls="-.", label=f"budget, {budget_text}")
    label = "pass rate (law of each size, 90 % band)"
    axes.set(xscale="log", xlabel=f"compute ({answer['unit']})", ylabel=label)
    heading = f"No size is recommended at {budget_text}."
    if answer["recommended"] is not None:
        chance = chance_in_words(answer["probability"])
        heading = (
            f"{answer['recommended']} is the best size at {budget_text} with a chance of {chance}."
        )
    write_heading(figure, [heading], answer["caveats"])
    legend_below(figure, columns=3)
    save(figure, path)


def _draw_changes(axes: Any, changes: Sequence[dict[str, Any]], first: float, last: float) -> None:
    """The computes from which a larger size is the better choice."""
    for change in changes:
        low, middle, high = (change["compute"][name] for name in ("q05", "q50", "q95"))
        if middle is not None and middle <= last:
            end = last if high is None else min(high, last)
            axes.axvspan(
                max(low, first),
                end,
                color=GREY,
                alpha=0.12,
                lw=0,
                label="another size becomes the best, 90 %",
            )
            axes.axvline(middle, color=GREY, lw=1, ls="--", label="the same, median")


def draw_runs(forecasts: Sequence[Forecast], answer: dict[str, Any], path: Path) -> None:
    """Draw every run until now and, if it continues, to its end, on the left; the expected loss of
    each choice right.

    `answer`: the command's answer about these runs, in their order. Raises UserError if the file
    cannot be written.
    """
    figure = new_figure((11, 4.4 + 0.2 * max(0, len(answer["choices"]) - 12)))
    curve_axes, loss_axes = figure.subplots(1, 2, width_ratios=(4, 3))
    for index, (forecast, run) in enumerate(zip(forecasts, answer["runs"], strict=True)):
        _draw_run(curve_axes, forecast, run, *look_of_run(index))
    curve_axes.set_title(
        "Laws; 90 % bands of runs that continue; cross: stopped", fontsize=10, loc="left"
    )
    curve_axes.set(xscale="log", xlabel=f"compute ({answer['unit']})", ylabel="pass rate")
    _draw_losses(loss_axes, answer)
    write_heading(figure, [answer["recommendation"]], answer["cautions"])
    if len(forecasts) <= MOST_LABELLED:
        legend_below(figure, curve_axes, columns=2)
    save(figure, path)


def _draw_losses(axes: Any, answer: dict[str, Any]) -> None:
    choices = answer["choices"]
    # Pass rate: a smaller loss would be printed as 0.000.
    min_shown_loss = 0.0005
    for index, choice in enumerate(choices):
        loss = choice["expected_loss"]
        upper_loss = max(loss, choice["loss_upper"])
        is_recommended = choice["continued"] == answer["recommended"]["continued"]
        colour = COLOURS[0] if is_recommended else GREY
        axes.barh(index, loss, color=colour, alpha=0.5, height=0.5)
        axes.plot([loss, upper_loss], [index, index], color=INK, lw=1)
        text = (
            f"{loss:.3f}, at most {upper_loss:.3f}"
            if upper_loss >= min_shown_loss
            else f"{loss:.3f}"
        )
        axes.annotate(
            f"{text}, recommended" if is_recommended else text,
            (upper_loss, index),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour if is_recommended else INK,
        )
    names = [
        choice["name"]
        # Characters of a name that fit next to a bar
        if len(choice["name"]) <= 34
        else f"{len(choice['continued'])} of {len(answer['runs'])}"
        for choice in choices
    ]
    axes.set_yticks(range(len(choices)), names, fontsize=8)
    axes.invert_yaxis()
    widest = max(
        min_shown_loss,
        *(choice["loss_upper"] for choice in choices),
        *(choice["expected_loss"] for choice in choices),
    )
    axes.set(xlim=(0, 1.8 * widest), xlabel="lower end of the best run (pass rate)")
    axes.set_title("Expected loss by which runs continue (line: 95 %)", fontsize=10, loc="left")


def _draw_run(axes: Any, forecast: Forecast, run: dict[str, Any], colour: str, marker: str) -> None:
    curve = forecast.curve
    last = float(curve.compute[-1])
    if run["hours"]:
        gets = f"{amount(run['hours'])} {curve.unit} more"
    elif run["has_forecast"]:
        gets = "stopped"
    else:
        gets = "set aside"
    label = f"{run['run']}: {gets} ({run['verdict'].replace('_', ' ')})"
    axes.plot(curve.compute, curve.pass_rate, marker, ms=3.5, color=colour, label=label)
    if run["has_forecast"]:
        measured_compute = np.geomspace(curve.compute[0], last, 150)
        further_compute = np.geomspace(last, last + run["hours"], 100)
        axes.plot(
            measured_compute, forecast.pass_rate(measured_compute, (0.5,))[0], color=colour, lw=1.2
        )
        low, middle, high = forecast.pass_rate(further_compute)
        axes.fill_between(further_compute, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(further_compute, middle, color=colour, lw=1.4, ls="--")
    if not run["hours"]:
        axes.plot([last], [run["now"]["mean"]], "X", ms=9, color=colour, mec="white", zorder=4)


def draw_splits(split_search: SplitSearch, cautions: Sequence[str], path: Path) -> None:
    """Draw steps an hour with their bound, above; the trainer's waiting and the generators' load,
    below.

    Both by trainer devices. Raises UserError if the file cannot be written.
    """
    figure = new_figure((9, 5.4))
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    outcomes = split_search.outcomes
    devices = [outcome.split.trainer_devices for outcome in outcomes]
    bounds = [outcome.bound for outcome in outcomes]
    upper.plot(devices, bounds, color=GREY, ls="--", lw=1, label="upper bound")
    upper.errorbar(
        devices,
        [outcome.steps_per_hour for outcome in outcomes],
        yerr=[2 * outcome.standard_error for outcome in outcomes],
        fmt="o-",
        ms=4,
        lw=1,
        color=COLOURS[0],
        label="simulated (2 standard errors)",
    )
    best_outcome = split_search.frugal
    best_point = ([best_outcome.split.trainer_devices], [best_outcome.steps_per_hour])
    upper.plot(*best_point, "o", ms=10, mfc="none", color=COLOURS[1], label="recommended split")
    upper.set_ylabel("steps per hour")
    upper.set_ylim(bottom=0)
    waiting = [outcome.trainer_idle for outcome in outcomes]
    load = [outcome.generator_load for outcome in outcomes]
    lower.plot(devices, waiting, "s-", ms=3.5, lw=1, color=COLOURS[2], label="trainer idle")
    lower.plot(devices, load, "^-", ms=3.5, lw=1, color=COLOURS[1], label="generators busy")
    lower.set(ylim=(0, 1.02), ylabel="share of the time", xlabel="devices of the trainer")
    lower.xaxis.get_major_locator().set_params(integer=True)
    split = (
        f"{best_outcome.split.generators} generators and {best_outcome.split.trainer_devices} "
        "trainer devices"
    )
    write_heading(figure, [f"{split}: {best_outcome.steps_per_hour:.4g} steps an hour."], cautions)
    legend_below(figure, columns=3)
    save(figure, path)
