"""The calculator of examples/ on several seeds: does it learn over several turns, and does its frozen forecast hold?

    python -m benchmarks.calculator [--seeds 0 1 2 3 4]

The model is made once, by the example's own script. Each seed then runs `rollcast up --config run.yaml` in a copy of
the example, with the seed added to the run file. Reference in the same run: repeating the last value of the moment when
the forecast was frozen. Writes results/calculator.json; exit status 1 if a target is missed; a run that fails is a row
of its own, and missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from testkit.ended_run import ended_run_figures
from testkit.record import ROOT, write_result
from testkit.system.audit import read_lines

EXAMPLE = ROOT / "examples" / "calculator"
LIMIT_SECONDS = 1_500.0
WANTED_PASS_RATE = 0.8
WANTED_SECONDS = 600.0


def make_model(folder: Path) -> float:
    """A copy of the example with its model and tasks; returns the seconds that its script took."""
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    started = time.monotonic()
    subprocess.run([sys.executable, "make_model.py"], cwd=folder, check=True, timeout=LIMIT_SECONDS)
    return round(time.monotonic() - started, 1)


def run_seed(seed: int, made: Path, folder: Path) -> dict[str, Any]:
    """One run of the example, as a user starts it."""
    shutil.copytree(made, folder)
    settings = yaml.safe_load((folder / "run.yaml").read_text())
    (folder / "run.yaml").write_text(yaml.safe_dump(settings | {"seed": seed}))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", "run.yaml"]
    started = time.monotonic()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    seconds = round(time.monotonic() - started, 1)
    figures = ended_run_figures(folder / "runs" / settings["run"]) if ended.returncode == 0 else None
    if figures is None:
        return {"seed": seed, "failed": f"exit status {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}"}
    reached = seconds_until_wanted(folder / "runs" / settings["run"])
    return {"seed": seed, "seconds": seconds, "seconds_until_wanted": reached, **figures}


def seconds_until_wanted(run: Path) -> float | None:
    """Seconds from the first step to the step of the first evaluation at the wanted rate; None = it was not reached."""
    made_at = {line["step"]: line["at"] for line in read_lines(run / "steps.jsonl")}
    for line in read_lines(run / "evaluations.jsonl"):
        if line["pass_rate"] >= WANTED_PASS_RATE:
            return float(round(made_at[line["step"]] - min(made_at.values()), 1))
    return None


def judge(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """The targets, for all seeds together."""
    if any("failed" in row for row in rows):
        return {"every run ends with a frozen forecast": False}
    needed = len(rows) - 1 if len(rows) > 1 else 1
    errors = [abs(row["error"]) for row in rows]
    return {
        "a pass rate of 0.8 within ten minutes in all": all(
            row["seconds_until_wanted"] is not None and row["seconds_until_wanted"] < WANTED_SECONDS for row in rows
        ),
        "final pass rate >= 0.8 in all": all(row["measured_end"] >= WANTED_PASS_RATE for row in rows),
        "better than the last value on average": fmean(errors) <= fmean(abs(row["last_value_error"]) for row in rows),
        "interval holds the end in all but one": sum(row["interval_holds_end"] for row in rows) >= needed,
        "no token older than k = 8": all(row["max_staleness"] <= 8 for row in rows),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rollcast-calculator-") as folder:
        made = Path(folder) / "made"
        model_seconds = make_model(made)
        for seed in arguments.seeds:
            rows.append(run_seed(seed, made, Path(folder) / str(seed)))
            shown = {key: value for key, value in rows[-1].items() if key != "curve"}
            print(json.dumps(shown), flush=True)
    targets = judge(rows)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("calculator", {"model_seconds": model_seconds, "seeds": rows, "targets": targets}))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
