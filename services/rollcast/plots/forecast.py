"""One run in one picture: its end, and whether the rest of the budget is worth its price.

Points, the level now, the band from now to the end of the budget; next to it the forecasts of the
same end that were possible earlier. A run whose verdict forecasts nothing is drawn without anything
beyond now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.curves.amounts import MEDIAN_AND_90, amount, interval, span
from rollcast.plots.earlier import EndForecast, forecasts_of_the_end
from rollcast.plots.figure import COLOURS, GREY, INK, legend_below, new_figure, write_heading
from rollcast.scaling.decisions.verdict import VerdictKind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rollcast.curves.run_forecast import RunForecast
    from rollcast.scaling.decisions.advice import Advice
    from rollcast.scaling.law.curve import Array

NUM_COMPUTES = 160
"""Computes at which the curves of the past and of the future are asked."""


@dataclass(frozen=True)
class _Scene:
    """Content of one picture, in the unit of the curve.

    Attributes:
        budget: compute at which the run would end.
        end: of the horizontal axis.
        looks_ahead: whether anything is forecast beyond now.
    """

    run: RunForecast
    advice: Advice
    newest_compute: float
    budget: float
    end: float
    looks_ahead: bool

    @property
    def is_logarithmic(self) -> bool:
        # Times the compute so far: up to here the axis is linear, as money is; beyond, the readings
        # would be squeezed
        return self.end > 5.0 * self.newest_compute

    @property
    def start(self) -> float:
        """The left end of the horizontal axis."""
        first = float(self.run.axis.to_device_hours(self.run.forecast.curve.compute[:1])[0])
        return first / 2 if self.is_logarithmic else 0.0


def forecast_figure(
    run: RunForecast, advice: Advice, *, until: float | None = None, target: float | None = None
) -> Figure:
    """The picture of a run, up to `until` in the unit of the curve, by default the budget of the
    `advice`.

    A `target` (pass rate) is drawn as a line.
    """
    newest_compute = run.newest.compute
    looks_ahead = run.forecast.verdict.has_forecast
    end = advice.budget if until is None else until
    if not looks_ahead and advice.is_assumed:
        end = newest_compute
    # Times the compute so far at which the axis ends if nothing is drawn beyond now
    end = max(end, 1.02 * newest_compute)
    scene = _Scene(run, advice, newest_compute, advice.budget, end, looks_ahead)
    earlier = forecasts_of_the_end(run, scene.budget)
    figure: Figure = new_figure((9, 4.6))
    if earlier:
        axes, strip = figure.subplots(1, 2, width_ratios=(9, 2), sharey=True)
        figure.set_layout_engine("constrained", wspace=0.05)
        _draw_earlier(strip, earlier)
    else:
        axes = figure.add_subplot()
    values = _draw_points(axes, scene)
    if looks_ahead:
        values += _draw_ahead(axes, scene)
    if target is not None:
        axes.axhline(target, color=COLOURS[2], lw=1, ls="-.", label=f"target {target:g}")
        values.append(target)
    _draw_marks(axes, scene)
    _set_axes(
        axes, scene, [*values, *(rate for forecast in earlier for rate in forecast.reading[1:4])]
    )
    write_heading(figure, _heading(scene))
    legend_below(figure, axes, columns=4)
    return figure


def _draw_points(axes: Any, scene: _Scene) -> list[float]:
    """The evaluations, and the law through them; returns the drawn pass rates."""
    run = scene.run
    forecast = run.forecast
    curve = forecast.curve
    measured = run.axis.to_device_hours(curve.compute)
    for point_slice, face, label in (
        (slice(forecast.excluded, None), INK, "evaluation"),
        (slice(0, forecast.excluded), "none", "evaluation, left out of the fit"),
    ):
        if curve.compute[point_slice].size:
            spread = None if curve.standard_error is None else curve.standard_error[point_slice]
            points = (measured[point_slice], curve.pass_rate[point_slice], spread)
            look = {"fmt": "o", "ms": 3.5, "lw": 0.8, "color": INK, "mfc": face, "zorder": 3}
            axes.errorbar(*points, label=label, **look)
    drawn: list[float] = curve.pass_rate.tolist()
    if curve.initial is not None and not scene.is_logarithmic:
        axes.plot([0.0], [curve.initial], "o", ms=3.5, color=INK, clip_on=False, zorder=3)
        drawn.append(curve.initial)
    if forecast.verdict.is_described:
        past = np.linspace(
            measured[min(forecast.excluded, len(curve) - 1)], measured[-1], NUM_COMPUTES
        )
        axes.plot(past, run.law(past, (0.5,))[0], color=COLOURS[0], lw=1.2, label="fitted law")
    return drawn


def _draw_ahead(axes: Any, scene: _Scene) -> list[float]:
    """The bands and the median of future readings, the level now and the ceiling; returns the drawn
    pass rates.
    """
    run = scene.run
    blue = COLOURS[0]
    space = np.geomspace if scene.is_logarithmic else np.linspace
    ahead: Array = space(scene.newest_compute, scene.end, NUM_COMPUTES)
    bands = run.reading(ahead)
    axes.fill_between(
        ahead, bands[0], bands[4], color=blue, alpha=0.15, lw=0, label="90 % of future readings"
    )
    axes.fill_between(
        ahead, bands[1], bands[3], color=blue, alpha=0.25, lw=0, label="50 % of future readings"
    )
    axes.plot(ahead, bands[2], color=blue, lw=1.4, ls="--", label="median of future readings")
    level = scene.advice.level
    label = f"level now, {level:.3f}"
    axes.hlines(level, scene.newest_compute, scene.end, color=INK, lw=1, ls=":", label=label)
    drawn = [float(bands[0].min()), float(bands[4].max()), level]
    forecast = run.forecast
    # Below an even chance gains more likely than not go on, and no line is drawn for an end
    if forecast.verdict.is_described and forecast.ceiling_probability >= 0.5:
        low, median, high = forecast.asymptote(MEDIAN_AND_90).tolist()
        # Pass rate: a ceiling further above the bands than this is not drawn, since it would
        # squeeze the rest
        if median < max(drawn) + 0.1:
            label = f"ceiling A, {median:.3f} (90 %: {low:.3f} to {high:.3f})"
            axes.axhline(median, color=GREY, lw=0.9, ls=(0, (1, 3)), label=label)
            drawn.append(median)
    return drawn


def _draw_marks(axes: Any, scene: _Scene) -> None:
    """Upright lines: now, the end of the budget, and the compute at which the run broke
    or changed.
    """
    unit = scene.run.unit
    axes.axvline(scene.newest_compute, color=GREY, lw=0.9)
    _write_above(axes, f"now, {amount(scene.newest_compute)} {unit}", scene.newest_compute, line=0)
    verdict = scene.run.forecast.verdict
    if verdict.at is not None:
        change_hours = float(scene.run.axis.to_device_hours(np.array([verdict.at]))[0])
        mark_name = "peak" if verdict.kind is VerdictKind.BROKEN else "change"
        axes.axvline(change_hours, color=COLOURS[1], lw=1.2, ls=":")
        _write_above(axes, f"{mark_name}, {amount(change_hours)} {unit}", change_hours, line=1)
    if not scene.start < scene.budget <= scene.end:
        return
    axes.axvline(scene.budget, color=INK, lw=1.2, ls="-.", clip_on=False)
    # Share of the axis: if now and the budget are closer, their labels are on two lines
    is_close = _place(scene, scene.budget) - _place(scene, scene.newest_compute) < 0.4
    name = "budget (assumed)" if scene.advice.is_assumed else "budget"
    label = f"{name}, {amount(scene.budget)} {unit}"
    _write_above(axes, label, scene.budget, line=1 if is_close else 0, side="right")


def _place(scene: _Scene, compute: float) -> float:
    """Share of the horizontal axis to the left of `compute`."""
    if scene.is_logarithmic:
        return float(np.log(compute / scene.start) / np.log(scene.end / scene.start))
    return compute / scene.end


def _write_above(axes: Any, text: str, compute: float, *, line: int, side: str = "center") -> None:
    placement = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    look = {"ha": side, "va": "bottom", "fontsize": 8.5, "color": INK}
    axes.annotate(text, (compute, 1.0), xytext=(0, 3 + 12 * line), **placement, **look)


def _draw_earlier(axes: Any, forecasts: list[EndForecast]) -> None:
    for position, forecast in enumerate(forecasts):
        low, quarter, median, three_quarters, high = forecast.reading
        colour = COLOURS[0] if forecast.share == 1.0 else COLOURS[1]
        axes.plot([position, position], [low, high], color=colour, lw=1.2)
        middle = {"lw": 4, "alpha": 0.5, "solid_capstyle": "butt"}
        axes.plot([position, position], [quarter, three_quarters], color=colour, **middle)
        axes.plot([position], [median], "o" if forecast.share == 1.0 else "s", ms=5, color=colour)
    names = [
        "now" if forecast.share == 1.0 else f"{100 * forecast.share:.0f} %"
        for forecast in forecasts
    ]
    axes.set_xticks(range(len(forecasts)), names, fontsize=8)
    axes.set_xlim(-0.6, len(forecasts) - 0.4)
    axes.tick_params(axis="y", labelleft=False, length=0)
    axes.set_title("The end, forecast", fontsize=8.5, loc="left", color=INK)
    axes.set_xlabel("after this share of\nthe compute so far", fontsize=8)


def _set_axes(axes: Any, scene: _Scene, rates: list[float]) -> None:
    axes.set_xscale("log" if scene.is_logarithmic else "linear")
    axes.set_xlim(scene.start, scene.end)
    low = min(rates)
    high = max(rates)
    # Smallest range of the vertical axis in pass rate: the noise of a flat run must not look like a
    # climb.
    min_rate_range = 0.1
    range_shortfall = max(min_rate_range - (high - low), 0.0)
    # Room above and below the drawn values, as a share of their range
    margin = 0.06 * max(high - low, min_rate_range)
    axes.set_ylim(
        max(low - range_shortfall / 2, 0.0) - margin, min(high + range_shortfall / 2, 1.0) + margin
    )
    axes.set_xlabel(f"compute ({scene.run.unit})")
    axes.set_ylabel("pass rate")


def _heading(scene: _Scene) -> list[str]:
    """The answer in words: what to do, why, and the end of the run."""
    run = scene.run
    kind = str(run.forecast.verdict.kind).replace("_", " ")
    advice = scene.advice
    sentences = [f"{run.forecast.curve.name}: {advice.headline or kind}", advice.reason]
    if advice.headline:
        sentences[0] += f" (verdict: {kind})"
    if scene.looks_ahead and scene.budget > scene.newest_compute:
        end = interval(run.reading([scene.budget], MEDIAN_AND_90)[:, 0])
        at = f"{amount(scene.budget)} {run.unit}"
        sentences.append(
            f"An evaluation at {at} reads {amount(end['q50'], '.3f')} (90 %: {span(end, '.3f')})."
        )
    return sentences
