"""Earlier forecasts of the end of a run, over the compute at which they were made, with the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcast.plots.figure import COLOURS, GREY, INK, new_figure, save

if TYPE_CHECKING:
    from rollcast.scaling.law.curve import Curve


def draw_past(curve: Curve, answer: dict[str, Any], path: Path) -> None:
    """`answer`: the command's JSON on the curve. Raises UserError: the file cannot be written."""
    cuts = answer["cuts"]
    blue = COLOURS[0]
    compute = [cut["compute"] for cut in cuts]
    low, median, high = ([cut["forecast"][name] for cut in cuts] for name in ("q05", "q50", "q95"))
    figure = new_figure((8, 4.8))
    axes = figure.add_subplot()
    axes.plot(curve.compute, curve.pass_rate, "o", ms=2.5, color=GREY, alpha=0.6, label="evaluation")
    axes.plot(compute, [cut["power_law"] for cut in cuts], color=GREY, ls="--", lw=1, label="power law's forecast")
    axes.axhline(answer["outcome"], color=INK, lw=1.2, label=f"outcome: {answer['outcome']:.3f}")
    axes.fill_between(compute, low, high, color=blue, alpha=0.13, lw=0)
    below = [middle - end for middle, end in zip(median, low, strict=True)]
    above = [end - middle for middle, end in zip(median, high, strict=True)]
    axes.errorbar(compute, median, yerr=(below, above), color=blue, lw=1, capsize=3, label="forecast of the end, 90 %")
    for face, label, wanted in (
        (blue, "verdict forecastable or saturated", True),
        ("white", "any other verdict", False),
    ):
        kept = [cut for cut in cuts if cut["is_decidable"] is wanted]
        if kept:
            x = [cut["compute"] for cut in kept]
            y = [cut["forecast"]["q50"] for cut in kept]
            axes.plot(x, y, "o", ms=6, color=blue, mfc=face, label=label, zorder=3)
    axes.set_title(
        f"{answer['curve']}: {answer['covered']} of {len(cuts)} forecasts of the end contain the outcome", fontsize=10
    )
    axes.set_xlim(left=0)
    axes.set_xlabel(f"compute seen ({curve.unit})")
    axes.set_ylabel("pass rate")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path)
