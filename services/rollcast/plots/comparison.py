"""Several curves: on the left with fits and bands, on the right the log re-plot, whose slope is B."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.plots.figure import COLOURS, MOST_LABELLED, new_figure, save

if TYPE_CHECKING:
    from rollcast.scaling.decisions.forecast import Forecast

MARKERS = "os^D"
"""One for each round of the colours."""


def draw_comparison(forecasts: Sequence[Forecast], answer: dict[str, Any], path: Path) -> None:
    """`answer`: the command's JSON on these runs, in their order.

    Raises UserError: the file cannot be written.
    """
    figure = new_figure((11, 4.8))
    curves, replot = figure.subplots(1, 2)
    first = min(float(forecast.curve.compute[0]) for forecast in forecasts)
    end = 1.3 * max(float(forecast.curve.compute[-1]) for forecast in forecasts)
    for number, (forecast, run) in enumerate(zip(forecasts, answer["runs"], strict=True)):
        look = {"color": COLOURS[number % len(COLOURS)]}
        marker = MARKERS[number // len(COLOURS) % len(MARKERS)]
        _draw_curve(curves, forecast, first, end, marker, look)
        if run["is_described"]:
            _draw_replot(replot, run, marker, look)
    table = answer.get("leave_one_out")
    if table is None or table["common_asymptote"] is None:
        held = "each run's own A"
    else:
        held = f"A = {table['common_asymptote']:.3f}, held"
    curves.set_title("fits with the law's 90 % band", fontsize=10)
    curves.set_xscale("log")
    curves.set_ylabel("pass rate")
    replot.set_title(f"log re-plot of the median laws, {held}: the slope is B", fontsize=10)
    replot.set_xscale("log")
    replot.set_ylabel(r"$\log_{10} F$,   $F = C_{mid}^B\,/\,((A - R_0)/(R - R_0) - 1)$")
    for axes, place in ((curves, "lower right"), (replot, "best")):
        axes.set_xlabel(f"compute ({forecasts[0].curve.unit})")
        if len(forecasts) <= MOST_LABELLED:
            axes.legend(frameon=False, fontsize=8, loc=place)
    save(figure, path)


def _draw_curve(axes: Any, forecast: Forecast, first: float, end: float, marker: str, look: dict[str, str]) -> None:
    curve = forecast.curve
    last = float(forecast.curve.compute[-1])
    if not forecast.verdict.kind.is_described:
        axes.plot(curve.compute, curve.pass_rate, marker, ms=3, label=f"{curve.name}: no law", **look)
        return
    seen = np.geomspace(first, last, 150)
    beyond = np.geomspace(last, end, 50)
    low, _, high = forecast.pass_rate(np.concatenate([seen, beyond]))
    axes.fill_between(np.concatenate([seen, beyond]), low, high, alpha=0.12, lw=0, **look)
    label = f"{curve.name}: A = {float(forecast.asymptote((0.5,))[0]):.3f}"
    axes.plot(seen, forecast.pass_rate(seen, (0.5,))[0], lw=1.4, marker=marker, ms=3, markevery=[], label=label, **look)
    axes.plot(beyond, forecast.pass_rate(beyond, (0.5,))[0], lw=1.4, ls="--", **look)
    fitted = slice(forecast.excluded, None)
    axes.plot(curve.compute[fitted], curve.pass_rate[fitted], marker, ms=3, **look)
    excluded = slice(0, forecast.excluded)
    axes.plot(curve.compute[excluded], curve.pass_rate[excluded], marker, ms=3, mfc="none", alpha=0.5, **look)


def _draw_replot(axes: Any, run: dict[str, Any], marker: str, look: dict[str, str]) -> None:
    replot = run["log_replot"]
    log_compute = np.array(replot["log_compute"]) / np.log(10.0)
    log_factor = np.array(replot["log_factor"]) / np.log(10.0)
    left_out = f", {replot['left_out']} left out" if replot["left_out"] else ""
    label = f"{run['curve']}: B = {replot['exponent']:.2f}{left_out}"
    axes.plot(10.0**log_compute, log_factor, marker, ms=3, **look)
    axes.plot(10.0**log_compute, replot["exponent"] * log_compute, lw=1.2, label=label, **look)
