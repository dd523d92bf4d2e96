"""docs/images/calculator.png, from both results: `python -m benchmarks.calculator.plot`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results"
IMAGE = Path(__file__).parents[2] / "docs" / "images" / "calculator.png"
SHOWN = {
    "calculator": "the class of the tutorial",
    "calculator-endpoint": "an agent at the endpoint",
}
STEPS_BETWEEN_FORECASTS = 5
"""All are of the last step. They are drawn to the right of it, so that none covers another."""


def main() -> None:
    figure = Figure(figsize=(9.0, 3.6), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for axes, (result, title) in zip(panels, SHOWN.items(), strict=True):
        draw(axes, json.loads((RESULTS / f"{result}.json").read_text())["figures"]["seeds"])
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step", fontsize=8)
        axes.tick_params(labelsize=8)
    panels[0].set_ylabel("held-out pass rate", fontsize=8)
    panels[0].legend(fontsize=7, loc="lower right", frameon=False)
    figure.savefig(IMAGE, metadata={"Software": ""})
    print(IMAGE)


def draw(axes: Axes, seeds: list[dict[str, Any]]) -> None:
    """The curve of each seed; to its right the forecast of its end, frozen at the dotted line, and
    the measured end.
    """
    for number, seed in enumerate(seeds):
        steps, pass_rates = zip(*seed["curve"], strict=True)
        color = f"C{number}"
        axes.plot(steps, pass_rates, "o-", ms=2.5, lw=1, color=color, label=f"seed {seed['seed']}")
        at = steps[-1] + STEPS_BETWEEN_FORECASTS * (number + 1)
        low, high = seed["interval_90"]
        axes.vlines(at, low, high, color=color, lw=1.5, alpha=0.5)
        axes.plot(at, seed["forecast"], "D", ms=4, color=color)
        axes.plot(at, seed["measured_end"], "_", ms=9, mew=2, color=color)
        axes.axvline(seed["frozen_at_step"], color="#7a818a", lw=0.6, ls=":")
    axes.set_ylim(0.2, 1.02)
    axes.grid(alpha=0.2)


if __name__ == "__main__":
    main()
