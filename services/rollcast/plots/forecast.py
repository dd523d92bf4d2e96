"""One curve: points, law, bands, and the power law for contrast; and its earlier forecasts, with the outcome."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.curves.amounts import MEDIAN_AND_90, amount
from rollcast.plots.figure import COLOURS, GREY, INK, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rollcast.curves.run_forecast import RunForecast
    from rollcast.scaling.law.curve import Curve


def forecast_figure(
    run: RunForecast, until: float, *, budget: float | None = None, target: float | None = None
) -> Figure:
    """Points, law, 50 and 90 % bands of readings and the power law, up to `until`, in the unit of the curve.

    A `budget` (compute of the whole run) and a `target` (pass rate) are drawn as lines.
    """
    from rollcast.curves.run_forecast import QUANTILES
    from rollcast.scaling.law.baselines import power_law

    forecast = run.forecast
    axis = run.axis
    blue = COLOURS[0]
    curve = forecast.curve
    measured = axis.to_device_hours(curve.compute)
    first = float(axis.to_device_hours(curve.compute[:1] / 2)[0])
    compute = np.geomspace(first, max(until, measured[-1]) * 1.05, 200)
    fitted = np.maximum(axis.to_fitted(compute), curve.compute[0] / 2)
    bands = forecast.predictive(fitted, QUANTILES)
    figure: Figure = new_figure((8, 4.8))
    axes = figure.add_subplot()
    axes.fill_between(compute, bands[0], bands[4], color=blue, alpha=0.13, lw=0, label="90 % of readings")
    axes.fill_between(compute, bands[1], bands[3], color=blue, alpha=0.22, lw=0, label="50 % of readings")
    axes.plot(compute, power_law(curve).pass_rate(fitted), color=GREY, ls="--", lw=1, label="power law")
    error = curve.standard_error
    for part, face, label in (
        (slice(forecast.excluded, None), INK, "evaluation"),
        (slice(0, forecast.excluded), "none", "left out of the fit"),
    ):
        if curve.compute[part].size:
            spread = None if error is None else error[part]
            x = measured[part]
            y = curve.pass_rate[part]
            axes.errorbar(x, y, yerr=spread, fmt="o", ms=3.5, lw=1, color=INK, mfc=face, label=label)
    low, median, high = forecast.asymptote(MEDIAN_AND_90)
    has_law = forecast.verdict.kind.is_described
    if has_law:
        axes.plot(compute, forecast.pass_rate(fitted, (0.5,))[0], color=blue, label="the law")
        axes.axhline(median, color="#59626d", ls=":", lw=1)
    if budget is not None:
        axes.axvline(budget, color=INK, lw=1, ls="-.", label=f"budget {amount(budget)}")
    if target is not None:
        axes.axhline(target, color=COLOURS[1], lw=1, ls="-.", label=f"target {target:g}")
    held = f", A = {median:.3f} ({low:.3f} to {high:.3f})" if has_law else ""
    axes.set_title(f"{curve.name}: {forecast.verdict.kind.replace('_', ' ')}{held}")
    axes.set_xscale("log")
    shown = [] if target is None else [target]
    axes.set_ylim(
        max(0.0, min(curve.pass_rate.min(), bands[0].min(), *shown) - 0.05),
        min(1.0, max(bands[4].max(), *([high] if has_law else []), curve.pass_rate.max(), *shown) + 0.05),
    )
    axes.set_xlabel(f"compute ({run.unit})")
    axes.set_ylabel("pass rate")
    axes.legend(loc="lower right", facecolor="white", edgecolor="none", framealpha=0.9)
    return figure


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
