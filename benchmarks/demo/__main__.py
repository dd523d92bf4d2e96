"""The demo on several seeds, first attempt of each: does it learn, and does its own forecast hold?

    python -m benchmarks.demo [--seeds 0 1 2 3 4] [--from-nothing]

Each seed runs `rollcast demo --seed N` as a user would. Reference in the same run: repeating the
last value of the moment when the forecast was frozen. --from-nothing also times `make demo` in a
fresh clone of the last commit with empty caches, the installation and the base model's training
included. Writes results/demo.json; exit status 1 if one of the targets is missed; a demo that fails
is a row of its own, and missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from testkit.ended_run import ended_run_figures
from testkit.record import write_result

LIMIT_SECONDS = 1_200.0


def time_from_nothing(folder: Path) -> float:
    """Seconds of `make demo` in a fresh clone."""
    subprocess.run(["git", "clone", "--quiet", ".", str(folder / "clone")], check=True)
    caches = {"XDG_CACHE_HOME": str(folder / "cache"), "PIP_CACHE_DIR": str(folder / "pip")}
    started = time.monotonic()
    subprocess.run(
        ["make", "demo"],
        cwd=folder / "clone",
        env=os.environ | caches,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return round(time.monotonic() - started, 1)


def run_seed(seed: int, folder: Path) -> dict[str, Any]:
    """One demo; its result and the pass rate reached at the freeze."""
    command = [
        sys.executable,
        "-m",
        "rollcast.cli.main",
        "demo",
        "--seed",
        str(seed),
        "--folder",
        str(folder),
    ]
    started = time.monotonic()
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    seconds = time.monotonic() - started
    figures = ended_run_figures(folder / "demo") if ended.returncode == 0 else None
    if figures is None:
        return {
            "seed": seed,
            "failed": f"exit status {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}",
        }
    return {"seed": seed, "seconds": round(seconds, 1), **figures}


def judge(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """The targets, for all seeds together."""
    if any("failed" in row for row in rows):
        return {"every demo ends with a frozen forecast": False}
    needed = len(rows) - 1 if len(rows) > 1 else 1
    errors = [abs(row["error"]) for row in rows]
    return {
        "final pass rate >= 0.8 in all": all(row["measured_end"] >= 0.8 for row in rows),
        "at least 25 evaluations in all": all(row["evaluations"] >= 25 for row in rows),
        "40-80 % of the gain reached at the freeze, in all": all(
            0.4 <= row["gain_share_at_freeze"] <= 0.8 for row in rows
        ),
        "error <= 0.05 in all but one": sum(error <= 0.05 for error in errors) >= needed,
        "better than the last value on average": fmean(errors)
        < fmean(abs(row["last_value_error"]) for row in rows),
        "interval holds the end in all but one": sum(row["interval_holds_end"] for row in rows)
        >= needed,
        "interval at most 0.20 wide": all(
            row["interval_90"][1] - row["interval_90"][0] <= 0.20 for row in rows
        ),
        "no token older than k = 8": all(row["max_staleness"] <= 8 for row in rows),
        "under 10 minutes each": all(row["seconds"] < 600 for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--from-nothing", action="store_true")
    arguments = parser.parse_args()
    rows, from_nothing = [], None
    with tempfile.TemporaryDirectory(prefix="rollcast-demo-") as folder:
        if arguments.from_nothing:
            from_nothing = time_from_nothing(Path(folder))
            print(f"make demo from nothing: {from_nothing} s", flush=True)
        for seed in arguments.seeds:
            rows.append(run_seed(seed, Path(folder) / str(seed)))
            shown = {key: value for key, value in rows[-1].items() if key != "curve"}
            print(json.dumps(shown), flush=True)
    targets = judge(rows)
    if from_nothing is not None:
        targets["from nothing under 10 minutes"] = from_nothing < 600
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(
        write_result(
            "demo", {"from_nothing_seconds": from_nothing, "seeds": rows, "targets": targets}
        )
    )
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
