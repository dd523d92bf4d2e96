"""Everything the forecaster claims, measured: `python -m benchmarks.forecast [--runs N] [--only PART ...]`.

    published     printed fits of arXiv 2510.13786 with the paper's procedure (real curves)
    extrapolation later points of real runs, beside existing methods (real curves)
    calibration   coverage of the intervals on simulated runs, 2,000 of each generator
    verdicts      simulated shapes, and the real runs that broke
    speed         processor time and memory

Real curves are read from the folder that ROLLCAST_SHARED_DATA names; without it those parts are skipped, and say so.
Writes results/forecast.json.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

PARTS = ("published", "extrapolation", "calibration", "verdicts", "speed")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast")
    parser.add_argument("--runs", type=int, default=2000, help="simulated runs of each generator")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments = parser.parse_args()

    from benchmarks.forecast import calibration, extrapolation, published, speed, tables, verdicts
    from benchmarks.forecast.real_curves import data_folder
    from benchmarks.record import write_result

    folder = data_folder()
    if folder is None:
        print("ROLLCAST_SHARED_DATA names no folder with curves/: the parts on real curves are SKIPPED.\n")
    figures: dict[str, Any] = {}

    def part(name: str, measure: Callable[[], Any], show: Callable[[Any], None], real: bool = False) -> None:
        if name.split(".")[0] not in arguments.only:
            return
        if real and folder is None:
            figures[name] = "skipped: no real curves"
            return
        figures[name] = measure()
        print(f"== {name}")
        show(figures[name])
        print(flush=True)

    part("published.fits", lambda: published.printed_fits(folder), tables.published, real=True)  # type: ignore[arg-type]
    part("published.power_law", lambda: published.power_law_windows(folder), tables.plain, real=True)  # type: ignore[arg-type]
    part("published.log_linear", published.simulated_log_linear, tables.plain)
    part("extrapolation.paper", lambda: extrapolation.paper_table(folder), tables.paper, real=True)  # type: ignore[arg-type]
    part("extrapolation.halves", lambda: extrapolation.half_table(folder), tables.halves, real=True)  # type: ignore[arg-type]
    part("calibration", lambda: calibration.calibration(arguments.runs), tables.calibration)
    part("verdicts.simulated", lambda: verdicts.simulated(max(arguments.runs // 4, 1)), tables.rows)
    part("verdicts.real", lambda: verdicts.real(folder), tables.rows, real=True)  # type: ignore[arg-type]
    part("speed", speed.speed, tables.plain)
    if tuple(arguments.only) == PARTS:
        print(f"written: {write_result('forecast', figures)}")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
