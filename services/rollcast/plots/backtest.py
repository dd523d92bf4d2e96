"""The earlier forecasts of a run's end, next to the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.curves.amounts import amount
from rollcast.plots.figure import COLOURS, GREY, legend_below, new_figure, save, write_heading

if TYPE_CHECKING:
    from rollcast.scaling.law.curve import Curve


def draw_backtest(curve: Curve, answer: dict[str, Any], path: Path) -> None:
    """`answer`: the command's JSON on the curve. Raises UserError: the file cannot be written."""
    cuts = answer["cuts"]
    blue = COLOURS[0]
    compute = [cut["compute"] for cut in cuts]
    low, median, high = ([cut["forecast"][name] for cut in cuts] for name in ("q05", "q50", "q95"))
    figure = new_figure((9, 4.4))
    axes = figure.add_subplot()
    axes.plot(curve.compute, curve.pass_rate, "o", ms=2.5, color=GREY, label="evaluation")
    outcome = f"outcome: {answer['outcome']:.3f}, mean of the last three evaluations"
    axes.axhline(answer["outcome"], color=COLOURS[1], lw=1.2, label=outcome)
    below = [middle - end for middle, end in zip(median, low, strict=True)]
    above = [end - middle for middle, end in zip(median, high, strict=True)]
    bars = {"color": blue, "lw": 1, "capsize": 3}
    axes.errorbar(
        compute, median, yerr=(below, above), label="forecast of the end made here (90 %)", **bars
    )
    for face, label, is_decidable in (
        (blue, "verdict for decisions: forecastable, saturated or no learning", True),
        ("white", "any other verdict", False),
    ):
        matching_cuts = [cut for cut in cuts if cut["is_decidable"] is is_decidable]
        if matching_cuts:
            x = [cut["compute"] for cut in matching_cuts]
            y = [cut["forecast"]["q50"] for cut in matching_cuts]
            axes.plot(x, y, "o", ms=6, color=blue, mfc=face, label=label, zorder=3)
    end = f"{amount(answer['compute'])} {curve.unit}"
    coverage_sentence = (
        f"{answer['covered']} of {len(cuts)} forecasts of the end at {end} contain the outcome."
    )
    write_heading(figure, [f"{answer['curve']}: {coverage_sentence}"])
    axes.set_xlim(0, float(curve.compute[-1]) * 1.02)
    axes.set_xlabel(f"compute seen ({curve.unit})")
    axes.set_ylabel("pass rate")
    legend_below(figure, columns=2)
    save(figure, path)
