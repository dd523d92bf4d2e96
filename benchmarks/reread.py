"""The table of a set whose runs are kept in results/, made again by the present code; nothing is
trained.

    python -m benchmarks.reread controls
    python -m benchmarks.reread ablation --null without-fp32-head,scalerl

`--null`: which were the whole recipe in effect. The kept points have no standard errors; the fit
estimates the noise. Writes `reread` into the figures of the file; the measurements and the first
results stay.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rollcast.cli.ablation_report import advice
from rollcast.cli.leave_one_out_report import show_leave_one_out, table_report
from rollcast.cli.run_report import middle_law, run_report
from rollcast.curves.axis import make_curve, without_start_up
from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.local.ablation import WHOLE
from rollcast.scaling.decisions.leave_one_out import leave_one_out
from rollcast.scaling.decisions.repeats import Repeats
from rollcast.scaling.law.curve import Curve
from testkit.record import RESULTS


def kept_curve(run: dict[str, Any]) -> Curve:
    """Curve of a run of the file, over device-hours since its first step."""
    points = tuple(
        CurvePoint(run["run"], "", 1, step, pass_rate, compute, None, None, None, at=0.0)
        for step, compute, pass_rate in run["curve"]
    )
    return make_curve(RunHistory(run["run"], points), without_start_up)[1]


def variant_of(run: dict[str, Any], prefix: str) -> str:
    """The row's name, which is in the run's: PREFIXname, or PREFIXname-sSEED."""
    return str(run["run"]).removeprefix(prefix).removesuffix(f"-s{run['seed']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("set", choices=("ablation", "controls"))
    parser.add_argument("--null", default="", metavar="NAME,...")
    arguments = parser.parse_args()
    path = RESULTS / f"{arguments.set}.json"
    record = json.loads(path.read_text())
    runs = record["figures"]["runs"]
    prefix = runs[0]["run"].partition(WHOLE)[0]
    curves: dict[str, list[Curve]] = {}
    for run in runs:
        curves.setdefault(variant_of(run, prefix), []).append(kept_curve(run))
    recipes = [Repeats.from_curves(name, found) for name, found in curves.items()]
    null = {name for name in arguments.null.split(",") if name}
    table = leave_one_out(recipes[0], recipes[1:], null_controls=null)
    forecasts = [recipe.joint for recipe in recipes]
    found = table_report(table, forecasts)
    reports = [
        run_report(one, middle_law(held))
        for one, held in zip(forecasts, table.at_common, strict=True)
    ]
    show_leave_one_out({"leave_one_out": found, "runs": reports})
    told = advice(table, forecasts, {variant_of(run, prefix): run["what"] for run in runs})
    print(*told, sep="\n")
    record["figures"]["reread"] = {
        "null_controls": sorted(null),
        "leave_one_out": found,
        "advice": told,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(path)


if __name__ == "__main__":
    main()
