"""Everything the forecaster claims, measured: `python -m benchmarks.forecast [--runs N] [--only
PART ...]`.

    published     printed fits of arXiv 2510.13786 with the paper's procedure (real curves)
    extrapolation later points of real runs, next to existing methods (real curves, and Rollcast's
    own)
    calibration   coverage of the intervals on simulated runs, 2,000 of each generator and window
    kinds         runs of other kinds than the law, next to existing methods
    verdicts      simulated shapes, and the real runs that broke
    speed         processor time and memory

Each figure that has a target is compared with it; the exit code is 1 if one is missed.

`--run-by-run` measures nothing: it prints the last results of the extrapolation run by run, as
Markdown. Real curves are read from the folder that ROLLCAST_SHARED_DATA names; without it those
parts are skipped, and say so. Writes results/forecast.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any

PARTS = ("published", "extrapolation", "calibration", "kinds", "verdicts", "speed")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast")
    parser.add_argument(
        "--runs",
        type=int,
        default=2000,
        help=(
            "simulated runs of each generator and window; a quarter of each shape, a tenth of "
            "other kinds"
        ),
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--run-by-run", action="store_true", help="print the last results run by run, as Markdown"
    )
    arguments = parser.parse_args()

    from benchmarks.forecast import calibration, speed
    from testkit.forecast import extrapolation, other_kinds, published, tables, targets, verdicts
    from testkit.forecast.real_curves import data_folder
    from testkit.record import RESULTS, write_result

    if arguments.run_by_run:
        last = json.loads((RESULTS / "forecast.json").read_text())["figures"]
        for name in ("extrapolation.paper", "extrapolation.halves", "extrapolation.own"):
            print(tables.run_by_run(last[name]["rows"]))
        return 0
    folder = data_folder()
    if folder is None:
        print(
            "ROLLCAST_SHARED_DATA names no folder with curves/: the parts on real curves are "
            "SKIPPED.\n"
        )
    figures: dict[str, Any] = {}

    def part(
        name: str, measure: Callable[[], Any], show: Callable[[Any], None], real: bool = False
    ) -> None:
        if name.split(".")[0] not in arguments.only:
            return
        if real and folder is None:
            figures[name] = "skipped: no real curves"
            return
        figures[name] = measure()
        print(f"== {name}")
        show(figures[name])
        print(flush=True)

    part(
        "published.fits",
        lambda: published.printed_fits(folder),  # type: ignore[arg-type]
        tables.print_published,
        real=True,
    )
    part(
        "published.power_law",
        lambda: published.power_law_windows(folder),  # type: ignore[arg-type]
        tables.plain,
        real=True,
    )
    part("published.log_linear", published.simulated_log_linear, tables.plain)
    part("extrapolation.paper", lambda: extrapolation.paper_table(folder), tables.paper, real=True)  # type: ignore[arg-type]
    part("extrapolation.halves", lambda: extrapolation.half_table(folder), tables.halves, real=True)  # type: ignore[arg-type]
    part("extrapolation.own", extrapolation.own_table, tables.halves)
    part("calibration", lambda: calibration.calibration(arguments.runs), tables.calibration)
    part(
        "calibration.false_alarms",
        lambda: verdicts.false_alarms(figures["calibration"]),
        tables.rows,
    )
    part("kinds", lambda: other_kinds.other_kinds(max(arguments.runs // 10, 1)), tables.rows)
    part(
        "verdicts.simulated",
        lambda: verdicts.measure_shapes(max(arguments.runs // 4, 1)),
        tables.rows,
    )
    part("verdicts.real", lambda: verdicts.real(folder), tables.rows, real=True)  # type: ignore[arg-type]
    part("speed", speed.speed, tables.plain)
    judged = targets.judge(figures)
    tables.targets(judged)
    if tuple(arguments.only) == PARTS:
        print(f"written: {write_result('forecast', figures | {'targets': judged})}")
    return 0 if all(target["met"] for target in judged.values()) else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
