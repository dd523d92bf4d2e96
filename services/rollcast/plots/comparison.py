"""Several curves: on the left with fits and bands, on the right how far each has come towards its
asymptote.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.plots.figure import GREY, MOST_LABELLED, legend_below, look_of_run, new_figure, save

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast


def draw_comparison(forecasts: Sequence[Forecast], answer: dict[str, Any], path: Path) -> None:
    """`answer`: the command's JSON on these runs, in their order.

    Raises UserError: the file cannot be written.
    """
    figure = new_figure((11, 4.6))
    curves, progress = figure.subplots(1, 2)
    first = min(float(forecast.curve.compute[0]) for forecast in forecasts)
    # Times the longest run's compute up to which the laws are drawn
    end = 1.3 * max(float(forecast.curve.compute[-1]) for forecast in forecasts)
    for number, (forecast, run) in enumerate(zip(forecasts, answer["runs"], strict=True)):
        colour, marker = look_of_run(number)
        _draw_curve(curves, forecast, run, (first, end), colour, marker)
        if run["is_described"]:
            _draw_progress(progress, run, colour, marker)
    curves.set_title(
        "Fitted laws with 90 % bands; dashed: beyond the newest evaluation", fontsize=10, loc="left"
    )
    curves.set_xscale("log")
    curves.set_ylabel("pass rate")
    progress.set_title(
        f"Progress towards {_asymptote_in_words(answer)}: the slope is B", fontsize=10, loc="left"
    )
    progress.set_xscale("log")
    progress.set_yscale("log")
    progress.set_ylabel("gain made ÷ gain still to make (1 = half-way, at C_mid)", fontsize=9)
    for axes in (curves, progress):
        axes.set_xlabel(f"compute ({forecasts[0].curve.unit})")
    if len(forecasts) <= MOST_LABELLED:
        legend_below(figure, curves, columns=2)
    save(figure, path)


def _asymptote_in_words(answer: dict[str, Any]) -> str:
    table = answer.get("leave_one_out")
    if table is None or table["common_asymptote"] is None:
        return "each run's own A"
    return f"the common A = {table['common_asymptote']:.3f}"


def _draw_curve(
    axes: Any,
    forecast: Forecast,
    run: dict[str, Any],
    ends: tuple[float, float],
    colour: str,
    marker: str,
) -> None:
    curve = forecast.curve
    last = float(curve.compute[-1])
    if not run["is_described"]:
        label = f"{curve.name}: no law ({run['verdict'].replace('_', ' ')})"
        axes.plot(curve.compute, curve.pass_rate, marker, ms=3.5, label=label, color=colour)
        return
    first, end = ends
    seen_compute = np.geomspace(first, last, 150)
    beyond = np.geomspace(last, end, 50)
    low, _, high = forecast.pass_rate(np.concatenate([seen_compute, beyond]))
    axes.fill_between(
        np.concatenate([seen_compute, beyond]), low, high, alpha=0.12, lw=0, color=colour
    )
    look = {"color": colour, "lw": 1.4}
    law = forecast.pass_rate(seen_compute, (0.5,))[0]
    points = {"marker": marker, "ms": 3.5}
    axes.plot(seen_compute, law, markevery=[], label=_label(run), **points, **look)
    axes.plot(beyond, forecast.pass_rate(beyond, (0.5,))[0], ls="--", **look)
    points |= {"ls": "", "color": colour}
    fitted = slice(forecast.excluded, None)
    axes.plot(curve.compute[fitted], curve.pass_rate[fitted], **points)
    excluded = slice(0, forecast.excluded)
    axes.plot(curve.compute[excluded], curve.pass_rate[excluded], mfc="none", alpha=0.5, **points)


def _label(run: dict[str, Any]) -> str:
    replot = run["log_replot"]
    asymptote = run["asymptote"]
    left_out = (
        f" ({replot['left_out']} readings outside of R_0 to A are not on the right)"
        if replot["left_out"]
        else ""
    )
    return (
        f"{run['curve']}: A = {asymptote['q50']:.3f} (90 %: {asymptote['q05']:.3f} to "
        f"{asymptote['q95']:.3f}), B = {replot['exponent']:.2f}{left_out}"
    )


def _draw_progress(axes: Any, run: dict[str, Any], colour: str, marker: str) -> None:
    """(R - R_0) / (A - R) over compute: the paper's F without its factor C_mid^B, so that 1 is
    half-way.
    """
    replot = run["log_replot"]
    compute = np.exp(np.array(replot["log_compute"]))
    ratio = np.exp(np.array(replot["log_factor"]) - replot["exponent"] * np.log(replot["midpoint"]))
    axes.plot(compute, ratio, marker, ms=3.5, color=colour)
    axes.plot(compute, (compute / replot["midpoint"]) ** replot["exponent"], lw=1.2, color=colour)
    axes.axhline(1.0, color=GREY, lw=0.8, ls=":")
