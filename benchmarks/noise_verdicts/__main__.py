"""Is noise called forecastable, and are rises still seen? `python -m benchmarks.noise_verdicts
[--series N]`.

    flat     readings around one level: how many are forecastable, and how many broken
    rising   a law that rises by 8 to 12 standard deviations: how many are forecastable or
             saturated, and how many still are of those that the other rules, such as the width of
             the interval, let be so

Cells: 6, 9, 16, 30 and 60 readings; noise of 0.015, 0.03 and 0.05; independent, and AR(1) with 0.5.
A flat series without a trend is never forecastable (`scaling/decisions/trend.py`), so only the
first `--whole` of a cell are fitted whatever they show; the shares of the other verdicts are of
those. Each cell is written when it is finished, and a later call with the same numbers goes on from
there. The exit code is 1 if a target is missed. Writes results/noise_verdicts.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from itertools import product
from typing import Any

LENGTHS = (6, 9, 16, 30, 60)
NOISES = (0.015, 0.03, 0.05)
CORRELATIONS = (0.0, 0.5)
MOST_IN_A_CELL = 0.065
MOST_OVERALL = 0.05
LEAST_STILL_DECIDED = 0.85


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.noise_verdicts")
    parser.add_argument("--series", type=int, default=1000, help="flat series of a cell")
    parser.add_argument(
        "--whole", type=int, default=100, help="of these, series that are fitted whatever they show"
    )
    parser.add_argument("--rising", type=int, default=100, help="rising series of a cell")
    parser.add_argument("--again", action="store_true", help="begin anew")
    arguments = parser.parse_args()

    from testkit.forecast.noisy_series import Cell
    from testkit.record import RESULTS, write_result

    asked = {
        "flat": arguments.series,
        "whole": min(arguments.whole, arguments.series),
        "rising": arguments.rising,
    }
    cells: dict[str, Any] = {}
    path = RESULTS / "noise_verdicts.json"
    if path.exists() and not arguments.again:
        last = json.loads(path.read_text())["figures"]
        cells = last["cells"] if last["series_of_a_cell"] == asked else {}
    for number, values in enumerate(product(LENGTHS, NOISES, CORRELATIONS)):
        cell = Cell(*values)
        if cell.name not in cells:
            cells[cell.name] = {
                **_flat(cell, number, asked),
                **_rising(cell, number, asked["rising"]),
            }
            write_result("noise_verdicts", _figures(asked, cells))
        print(f"{cell.name:38} {_line(cells[cell.name])}", flush=True)
    figures = _figures(asked, cells)
    print(json.dumps({name: value for name, value in figures.items() if name != "cells"}, indent=1))
    print(f"written: {write_result('noise_verdicts', figures)}")
    return 0 if all(target["met"] for target in figures["targets"].values()) else 1


def _flat(cell: Any, number: int, asked: dict[str, int]) -> dict[str, Any]:
    """Verdicts on series without a trend. `number`: of the cell, which seeds them."""
    import numpy as np

    from rollcast.scaling.decisions.fit import fit
    from rollcast.scaling.decisions.trend import has_trend
    from testkit.forecast.noisy_series import flat_series

    rng = np.random.default_rng([19, number])
    whole: Counter[str] = Counter()
    num_trends = 0
    num_forecastable = 0
    for place in range(asked["flat"]):
        curve = flat_series(cell, rng)
        shows_trend = has_trend(curve)
        num_trends += shows_trend
        if not shows_trend and place >= asked["whole"]:
            continue
        kind = str(fit(curve).verdict.kind)
        num_forecastable += kind == "forecastable"
        if place < asked["whole"]:
            whole[kind] += 1
    return {
        "flat": asked["flat"],
        "flat_with_trend": num_trends,
        "flat_forecastable": num_forecastable,
        "flat_whole": dict(whole),
    }


def _rising(cell: Any, number: int, count: int) -> dict[str, Any]:
    import numpy as np

    from rollcast.scaling.decisions.fit import fit
    from rollcast.scaling.decisions.trend import has_trend
    from testkit.forecast.noisy_series import rising_series

    rng = np.random.default_rng([20, number])
    curves = [rising_series(cell, rng) for _ in range(count)]
    kinds = Counter(str(fit(curve).verdict.kind) for curve in curves)
    return {
        "rising": count,
        "rising_with_trend": sum(map(has_trend, curves)),
        "rising_verdicts": dict(kinds),
    }


def _figures(asked: dict[str, int], cells: dict[str, Any]) -> dict[str, Any]:
    flat = {name: cell["flat_forecastable"] / cell["flat"] for name, cell in cells.items()}
    power = {name: _decided(cell) / cell["rising"] for name, cell in cells.items()}
    worst = max(flat.values())
    overall = sum(flat.values()) / len(flat)
    decided = sum(power.values()) / len(power)
    # No more than those without a trend can have been barred by its rule.
    trend = sum(cell["rising_with_trend"] / cell["rising"] for cell in cells.values()) / len(cells)
    still = decided / (decided + 1.0 - trend)
    broken = sum(cell["flat_whole"].get("broken", 0) for cell in cells.values()) / (
        asked["whole"] * len(cells)
    )
    return {
        "series_of_a_cell": asked,
        "targets": {
            "flat forecastable, worst cell": _target(
                worst, MOST_IN_A_CELL, met=worst <= MOST_IN_A_CELL
            ),
            "flat forecastable, all": _target(overall, MOST_OVERALL, met=overall <= MOST_OVERALL),
            "rising still decided, at least": _target(
                still, LEAST_STILL_DECIDED, met=still >= LEAST_STILL_DECIDED
            ),
        },
        "rising_decided": decided,
        "rising_with_trend": trend,
        "flat_broken": broken,
        "cells": cells,
    }


def _target(measured: float, wanted: float, *, met: bool) -> dict[str, Any]:
    return {"measured": measured, "wanted": wanted, "met": met}


def _decided(cell: dict[str, Any]) -> int:
    kinds = cell["rising_verdicts"]
    return int(kinds.get("forecastable", 0) + kinds.get("saturated", 0))


def _line(cell: dict[str, Any]) -> str:
    false = cell["flat_forecastable"] / cell["flat"]
    broken = cell["flat_whole"].get("broken", 0) / max(sum(cell["flat_whole"].values()), 1)
    decided = _decided(cell) / cell["rising"]
    return f"forecastable {false:6.1%}, broken {broken:6.1%}; of the rising decided {decided:6.1%}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
