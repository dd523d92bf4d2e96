"""The leave-one-out set and the five published recipes on the demo's model, 60 steps each, from one
command.

    python -m benchmarks.ablation [--folder runs/ablation-benchmark]

Runs `rollcast ablate` as a user would and goes on with what the folder holds: a second call repeats
no finished run. ablation.json in the folder shows after every run how far it is. Writes
results/ablation.json; exit status 1 if a target is missed. The results of the table have no target:
at this budget most rows cannot be distinguished.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rollcast.runfolder import files
from rollcast.runfolder.outcomes import RunRecord, SetRecord
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord, read_record
from rollcast.runfolder.survival import surviving
from testkit.record import write_result

CONFIG = Path("configs/ablation.yaml")
PUBLISHED = ("scalerl", "deepseek-grpo", "qwen-dapo", "magistral", "minimax")
STEPS = 60
LIMIT_MINUTES = 60.0
RUN_MINUTES = 6.0
TIMEOUT_SECONDS = 7_200.0


def run_set(folder: Path) -> tuple[dict[str, Any], int, float]:
    """The command's answer, its exit status, the minutes it took."""
    command = [sys.executable, "-m", "rollcast.cli.main", "ablate", "--config", str(CONFIG)]
    command += [
        "--without",
        "all,fresh_data",
        "--recipe",
        ",".join(PUBLISHED),
        "--steps",
        str(STEPS),
    ]
    command += ["--run-minutes", str(RUN_MINUTES), "--folder", str(folder), "--continue", "--json"]
    started = time.monotonic()
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    minutes = (time.monotonic() - started) / 60.0
    return json.loads(ended.stdout) if ended.stdout else {}, ended.returncode, minutes


def recorded(folder: Path) -> list[RunRecord]:
    """How each run ended; empty if the command wrote nothing."""
    try:
        return read_record(folder / files.ABLATION, SetRecord).set
    except FileNotFoundError:
        return []


def end_state(record: RunRecord) -> dict[str, Any]:
    """The parts of a run that are kept: how it ended, and its curve."""
    folder = Path(record.folder)
    points = surviving(RecordFile(folder / files.EVALUATIONS, EvaluationRecord).read())
    steps = RecordFile(folder / files.STEPS, StepRecord)
    kept = {
        name: getattr(record, name)
        for name in ("run", "what", "seed", "state", "error", "seconds", "initial", "measured")
    }
    return kept | {
        "steps": len({record.step for record in steps.read()}),
        "curve": [
            [point.step, round(point.compute_device_hours, 5), round(point.pass_rate, 4)]
            for point in points
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/ablation-benchmark"))
    folder = parser.parse_args().folder
    answer, status, minutes = run_set(folder)
    runs = [end_state(record) for record in recorded(folder)]
    continued = any(run["seconds"] is None for run in runs)
    targets = {
        "every recipe trains for 60 steps without error": bool(runs)
        and all(run["state"] == "finished" and run["steps"] == STEPS for run in runs),
        "one command ends in the table": status == 0 and "leave_one_out" in answer,
    }
    if not continued:  # a set that was continued says nothing about the time
        targets[f"under {LIMIT_MINUTES:.0f} minutes"] = minutes < LIMIT_MINUTES
    for run in runs:
        print(
            f"{run['run']}: {run['state']}, {run['steps']} steps, {run['initial']} to "
            f"{run['measured']}"
        )
    for line in answer.get("advice", []):
        print(line)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    figures = {
        "minutes": round(minutes, 1),
        "continued": continued,
        "runs": runs,
        "leave_one_out": answer.get("leave_one_out"),
        "verdicts": {run["curve"]: run["verdict"] for run in answer.get("runs", [])},
        "advice": answer.get("advice"),
        "targets": targets,
    }
    print(write_result("ablation", figures))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
