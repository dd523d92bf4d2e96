"""The picture of `rollcast plan batch`, as PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.curves.amounts import amount
from rollcast.plots.figure import COLOURS, GREY, INK, legend_below, new_figure, save, write_heading
from rollcast.scaling.decisions.advice_words import chance_in_words

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast


def draw_batch(forecasts: Sequence[Forecast], answer: dict[str, Any], path: Path) -> None:
    """Draw the runs with their forecasts to the budget, left; the splits at the budget, right.

    `forecasts`: in the order of the runs. Raises UserError if the file cannot be written.
    """
    figure = new_figure((11, 4.8))
    curve_axes, split_axes = figure.subplots(1, 2, width_ratios=(1, 1))
    splits = {
        own_curve["curve"]: row["name"]
        for row in answer["splits"]
        for own_curve in row["own_curves"]
    }
    for index, forecast in enumerate(forecasts):
        _draw_run(
            curve_axes,
            forecast,
            splits.get(forecast.curve.name),
            answer["budget"],
            COLOURS[index % len(COLOURS)],
        )
    curve_axes.axvline(answer["budget"], color=INK, lw=1, ls=":")
    label = f"compute ({answer['unit']}); dotted: the budget"
    curve_axes.set(xscale="log", xlabel=label, ylabel="pass rate")
    curve_axes.set_title("each run, and its forecast to the budget (90 %)", fontsize=10)
    _draw_splits(split_axes, answer)
    budget_text = f"{amount(answer['budget'])} {answer['unit']}"
    best = answer["recommended"]
    title = f"No split is recommended at {budget_text}"
    if best is not None:
        chance = chance_in_words(answer["probability"])
        title = f"{best['name']} at {budget_text}, the best with {chance}"
    write_heading(figure, [title], answer["caveats"])
    legend_below(figure, curve_axes, columns=4)
    save(figure, path)


def _draw_run(axes: Any, forecast: Forecast, split: str | None, budget: float, colour: str) -> None:
    curve = forecast.curve
    label = curve.name if split is None else f"{curve.name}: {split}"
    axes.plot(curve.compute, curve.pass_rate, "o", ms=3, color=colour, label=label)
    if not forecast.verdict.kind.is_described:
        return
    last = float(curve.compute[-1])
    compute = np.geomspace(min(float(curve.compute[0]), budget), max(last, budget), 100)
    low, middle, high = forecast.predictive(compute, (0.05, 0.5, 0.95), standard_error=0.0)
    axes.fill_between(compute, low, high, color=colour, alpha=0.12, lw=0)
    axes.plot(compute, middle, color=colour, lw=1.2)


def _draw_splits(axes: Any, answer: dict[str, Any]) -> None:
    """By the law, with 90 % intervals; crosses are forecasts of the split's own runs."""
    best = answer["recommended"]
    for index, row in enumerate(answer["splits"]):
        law = row["pass_rate"]
        is_best = best is not None and row["name"] == best["name"]
        colour = COLOURS[0] if is_best else GREY
        axes.plot([index, index], [law["q05"], law["q95"]], color=colour, lw=2 if is_best else 1.2)
        axes.plot(
            [index],
            [law["q50"]],
            "o",
            ms=6,
            color=colour,
            mfc=colour if row["trained"] else "white",
        )
        own_rates = [
            own_curve["q50"] for own_curve in row["own_curves"] if own_curve["is_described"]
        ]
        axes.plot([index] * len(own_rates), own_rates, "x", ms=6, color=INK)
    names = [row["name"] for row in answer["splits"]]
    axes.set_xticks(range(len(names)), names, rotation=45 if len(names) > 6 else 0, fontsize=8)
    axes.set_xlabel("rollouts x prompts (hollow: not trained; crosses: own curves)")
    axes.set_ylabel("pass rate at the budget (90 %)")
    axes.set_title("the law across splits at the budget", fontsize=10)
