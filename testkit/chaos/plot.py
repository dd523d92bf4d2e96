"""A picture of all runs: when each fault was made, and how long the run took to work again."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(records: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 1 + 0.5 * len(records)))
    kinds = sorted({fault["kind"] for record in records for fault in record["faults"]})
    palette = pyplot.get_cmap("tab20")
    colours = {kind: palette(number % 20) for number, kind in enumerate(kinds)}
    for row, record in enumerate(records):
        faults = [fault for fault in record["faults"] if fault["took"]]
        for fault in faults:
            begin = fault["began"] - record["faults"][0]["began"]
            lasted = fault["ended"] - fault["began"]
            axis.barh(row, lasted, left=begin, color=colours[fault["kind"]])
            # Paler: until both generators were members and two more steps were made
            recovery = fault.get("recovered_seconds", 0.0)
            axis.barh(row, recovery, left=begin + lasted, color=colours[fault["kind"]], alpha=0.3)
    axis.set_yticks(range(len(records)), [record["run"] for record in records])
    axis.invert_yaxis()
    axis.set_xlabel("seconds since the first fault; paler: until the run works again")
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=colours[kind]) for kind in kinds]
    axis.legend(handles, kinds, fontsize="small", ncols=4, loc="upper center",
                bbox_to_anchor=(0.5, -0.25))  # fmt: skip
    figure.savefig(path, bbox_inches="tight", dpi=120)
    pyplot.close(figure)
