"""A sweep: readings of every run, and where each arm is expected at the target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollcast.curves.amounts import amount
from rollcast.plots.figure import (
    GREY,
    MOST_LABELLED,
    legend_below,
    look_of_run,
    new_figure,
    save,
    write_heading,
)


def draw_sweep(answer: dict[str, Any], path: Path) -> None:
    """`answer`: the JSON of `rollcast sweep run`. Raises UserError: the file cannot be written."""
    figure = new_figure((9, 4.6))
    curves, levels = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    arms = answer["arms"]
    for number, arm in enumerate(arms):
        colour, marker = look_of_run(number)
        chance = "failed" if arm["chance"] is None else f"chance {arm['chance']:.2f}"
        label = f"{arm['arm']}: {chance}"
        for run in arm["runs"]:
            if run["readings"]:
                compute, pass_rate = zip(*run["readings"], strict=True)
                look = {"marker": marker, "ms": 3, "lw": 1.0, "color": colour}
                curves.plot(compute, pass_rate, label=label, **look)
        if (level := arm["level"]) is not None:
            below = level["mean"] - level["q05"]
            above = level["q95"] - level["mean"]
            look = {"fmt": marker, "color": colour, "capsize": 3}
            levels.errorbar([number], [level["mean"]], yerr=[[below], [above]], **look)
    unit = answer["unit"].replace("_", "-")
    curves.axvline(answer["target"], color=GREY, lw=1.0, ls="-.")
    curves.set(xlabel=f"compute ({unit}), start-ups left out", ylabel="pass rate")
    curves.set_title("Readings; dash-dotted: the target", fontsize=10, loc="left")
    levels.set_title("Level at the target, 90 %", fontsize=10, loc="left")
    levels.set_xlim(-0.5, len(arms) - 0.5)
    levels.set_xticks([])
    heading = f"No arm is chosen: {answer['reason']}."
    if answer["chosen"] is not None:
        heading = (
            f"{answer['chosen']} is the best at {amount(answer['target'])} {unit} with a chance "
            f"of {answer['chance']:.2f}, after {amount(answer['spent'])} of the "
            f"{amount(answer['all_whole'])} {unit} that all runs would take."
        )
    write_heading(figure, [heading])
    if len(arms) <= MOST_LABELLED:
        legend_below(figure, curves, columns=2)
    save(figure, path)
