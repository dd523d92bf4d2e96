"""Pictures of plans, as PNG or SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rollcast.cli.plots.figure import COLOURS, GREY, INK, new_figure, save, write_cautions
from rollcast.cli.report import amount, chance

if TYPE_CHECKING:
    from rollcast.scaling.forecast import Forecast
    from rollcast.scaling.model_size import ModelSizeLaw
    from rollcast.simulation.split import SplitSearch


def draw_sizes(runs: list[tuple[float, Forecast]], law: ModelSizeLaw, answer: dict[str, Any], path: Path) -> None:
    """Points of every run, the law of every size with its 90 % band, the budget, where the choice changes, cautions.

    Raises UserError where the file cannot be written.
    """
    figure = new_figure((8, 4.8))
    axes = figure.add_subplot()
    first = min(float(forecast.curve.compute[0]) for _, forecast in runs)
    last = max(answer["budget"], *(float(forecast.curve.compute[-1]) for _, forecast in runs))
    compute = np.geomspace(first, last * 1.5, 200)
    for place, row in enumerate(answer["sizes"]):
        colour = COLOURS[place % len(COLOURS)]
        low, middle, high = law.pass_rate(row["size"], compute)
        axes.fill_between(compute, low, high, color=colour, alpha=0.12, lw=0)
        axes.plot(compute, middle, color=colour, ls="-" if row["trained"] else "--", label=row["name"])
        for curve in (forecast.curve for size, forecast in runs if size == row["size"]):
            axes.plot(curve.compute, curve.pass_rate, "o", ms=3, color=colour)
    axes.axvline(answer["budget"], color=INK, lw=1, ls=":")
    for change in answer["changes"]:
        low, middle, high = (change["compute"][name] for name in ("q05", "q50", "q95"))
        if middle is not None and middle <= compute[-1]:
            end = compute[-1] if high is None else min(high, compute[-1])
            axes.axvspan(max(low, first), end, color=GREY, alpha=0.1, lw=0)
            axes.axvline(middle, color=GREY, lw=1, ls="--")
    axes.set_title(
        f"{answer['recommended']} at {amount(answer['budget'])} device-hours, "
        f"the best with {chance(answer['probability'])}"
    )
    axes.set_xscale("log")
    axes.set_xlabel("compute (device-hours)")
    axes.set_ylabel("pass rate")
    axes.legend(frameon=False, title="model size")
    write_cautions(figure, answer["caveats"])
    save(figure, path)


def draw_splits(found: SplitSearch, cautions: Sequence[str], path: Path) -> None:
    """Steps an hour with their bound, above; the trainer's waiting and the generators' load, below; by trainer devices.

    Raises UserError where the file cannot be written.
    """
    figure = new_figure((8, 6))
    upper, lower = figure.subplots(2, sharex=True, height_ratios=(3, 2))
    devices = [outcome.split.trainer_devices for outcome in found.outcomes]
    upper.plot(devices, [outcome.bound for outcome in found.outcomes], color=GREY, ls="--", lw=1, label="bound")
    upper.errorbar(
        devices,
        [outcome.steps_per_hour for outcome in found.outcomes],
        yerr=[2 * outcome.standard_error for outcome in found.outcomes],
        fmt="o-",
        ms=4,
        lw=1,
        color=COLOURS[0],
        label="simulated (2 standard errors)",
    )
    best = found.best
    upper.plot([best.split.trainer_devices], [best.steps_per_hour], "o", ms=10, mfc="none", color=COLOURS[1])
    upper.set_title(
        f"{best.split.generators} generators and {best.split.trainer_devices} trainer devices: "
        f"{best.steps_per_hour:.4g} steps an hour"
    )
    upper.set_ylabel("steps per hour")
    upper.set_ylim(bottom=0)
    upper.legend(frameon=False)
    waiting = [outcome.trainer_idle for outcome in found.outcomes]
    load = [outcome.generator_load for outcome in found.outcomes]
    lower.plot(devices, waiting, "o-", ms=3, lw=1, color=COLOURS[0], label="trainer idle")
    lower.plot(devices, load, "o-", ms=3, lw=1, color=COLOURS[1], label="generators' load")
    lower.set_ylim(0, 1.02)
    lower.set_ylabel("share")
    lower.set_xlabel("trainer devices")
    lower.legend(frameon=False)
    write_cautions(figure, cautions)
    save(figure, path)
