"""The pictures of docs/forecasting.md, from real curves: `python -m benchmarks.forecast.plots`
writes docs/images/.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.baselines import power_law
from rollcast.scaling.law.curve import Curve
from testkit.forecast.extrapolation import FITTED
from testkit.forecast.real_curves import data_folder, other_runs, paper_runs, truncating_run

IMAGES = Path(__file__).parents[2] / "docs" / "images"
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
BLUE, GREY, INK = "#1d5fd1", "#7a818a", "#1a1e23"


def main() -> None:
    folder = data_folder()
    if folder is None:
        raise SystemExit(
            "ROLLCAST_SHARED_DATA names no folder with curves/; the pictures need them."
        )
    IMAGES.mkdir(parents=True, exist_ok=True)
    runs = paper_runs(folder)
    others = other_runs(folder)

    figure, (left, right) = _panels(2, (10.0, 3.8))
    for axes, key in ((left, ("merged", "ScaleRL")), (right, ("fig2", "MiniMax"))):
        run = runs[key]
        _draw(axes, run.fitted_points(), run.curve())
        axes.set_title(f"{run.name} (arXiv 2510.13786)", fontsize=9)
    left.legend(fontsize=7, loc="lower right", frameon=False)
    _save(figure, "forecast-extrapolation")

    figure, panels = _panels(3, (11.0, 3.4))
    whole = others["qwen3.5-4b experiment_5"]
    for axes, share in zip(panels, (0.15, 0.3, 0.6), strict=True):
        seen = whole.window(stop=share * whole.compute[-1])
        _draw(axes, seen, whole)
        axes.set_title(
            f"after {share:.0%}: {fit(seen, FITTED).verdict.kind.replace('_', ' ')}", fontsize=9
        )
    _save(figure, "forecast-aging")

    figure, panels = _panels(3, (11.0, 3.4))
    broken = (
        (runs["fig2", "DeepSeek-GRPO"].curve(), "DeepSeek-GRPO (arXiv 2510.13786)"),
        (others["qwen3-0.6b ch07_7_3_plus_tracking"], "Qwen3-0.6B, GRPO, MATH-500"),
        (truncating_run(folder), "Qwen2-7B, GPG: reward, and truncation (red)"),
    )
    for axes, (curve, title) in zip(panels, broken, strict=True):
        axes.plot(curve.compute, curve.pass_rate, "o", ms=3, color=INK)
        if curve.truncation_ratio is not None:
            axes.plot(curve.compute, curve.truncation_ratio, color="#c43d3d", lw=1)
        axes.set_title(f"{title}\n{fit(curve).verdict.kind.replace('_', ' ')}", fontsize=9)
    _save(figure, "forecast-broken")


def _panels(count: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=size, layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = list(np.atleast_1d(figure.subplots(1, count)))
    for axes in panels:
        axes.set_xlabel("compute (device-hours)", fontsize=8)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel("pass rate", fontsize=8)
    return figure, panels


def _draw(axes: Axes, seen: Curve, whole: Curve) -> None:
    """The forecast made from `seen`, and all that came."""
    forecast = fit(seen, FITTED)
    compute = np.geomspace(whole.compute[0], whole.compute[-1] * 1.1, 150)
    band = forecast.predictive(compute, QUANTILES)
    axes.fill_between(
        compute, band[0], band[4], color=BLUE, alpha=0.13, lw=0, label="90 % of readings"
    )
    axes.fill_between(compute, band[1], band[3], color=BLUE, alpha=0.22, lw=0, label="50 %")
    axes.plot(compute, forecast.pass_rate(compute, (0.5,))[0], color=BLUE, lw=1.5, label="the law")
    axes.plot(
        compute, power_law(seen).pass_rate(compute), color=GREY, lw=1, ls="--", label="power law"
    )
    later = whole.compute > seen.compute[-1]
    axes.plot(seen.compute, seen.pass_rate, "o", ms=3.5, color=INK, label="seen")
    axes.plot(
        whole.compute[later],
        whole.pass_rate[later],
        "o",
        ms=3.5,
        mfc="none",
        color=INK,
        label="came later",
    )
    axes.axvline(seen.compute[-1], color=GREY, lw=0.8, ls=":")
    spread = np.ptp(whole.pass_rate)
    axes.set_ylim(
        whole.pass_rate.min() - 0.1 * spread,
        min(max(whole.pass_rate.max(), band[3].max()) + 0.2 * spread, 1.02),
    )


def _save(figure: Figure, name: str) -> None:
    path = IMAGES / f"{name}.png"
    figure.savefig(path)
    print(path)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
