"""Whole runs under faults, and an audit of their files.

    python -m benchmarks.chaos [--runs 12] [--seed 0] [--minutes 30] [--folder runs/chaos]
                               [--faults 17] [--kinds answers class ...]

Real runs with vLLM on a CPU, one after another, under a seeded schedule of faults: processes are
killed, stopped, slowed and asked to end in each phase of their work, networks between them fail,
Redis refuses writes or loses the end of its file, the disk is full, `up` is killed and resumed. An
accountant that imports nothing of Rollcast then reads tasks.jsonl, steps.jsonl and /metrics.

Each run writes FOLDER/RUN.json and is not made again by the next call with the same folder and
seed, so that 200 faults may be made in parts. Writes results/chaos.json and FOLDER/chaos.png; exit
status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from testkit.chaos.faults import RUN_KINDS
from testkit.chaos.part import run_part
from testkit.chaos.plot import draw
from testkit.chaos.report import summarise
from testkit.chaos.schedule import PlannedRun, make_schedule
from testkit.forked_programs import SERVICES, SYSTEM, ForkedPrograms
from testkit.record import write_result

FAULTS_PER_RUN = 17
"""12 runs make 204 faults. About 40 seconds each, so a run takes 12 minutes."""
RUN_MINUTES = 14.0
"""A run begins no further fault after this time: two runs fit into a part of 30 minutes."""
FORKED = (*SYSTEM, *SERVICES, "rollcast.grader.service")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=12, help="how many; the kinds take turns")
    parser.add_argument("--seed", type=int, default=0, help="of the schedule")
    parser.add_argument(
        "--minutes",
        type=float,
        default=30.0,
        help="of this call, which begins no run that may take longer; call again to go on",
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/chaos"), help="of the records")
    parser.add_argument("--faults", type=int, default=FAULTS_PER_RUN, help="of each run")
    parser.add_argument("--kinds", nargs="+", choices=RUN_KINDS, default=RUN_KINDS)
    arguments = parser.parse_args()
    schedule = make_schedule(
        arguments.seed, arguments.runs, arguments.faults, tuple(arguments.kinds)
    )
    folder = arguments.folder.absolute() / f"seed-{arguments.seed}-faults-{arguments.faults}"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60.0 * arguments.minutes
    run_minutes = min(arguments.minutes, RUN_MINUTES)
    records = []
    for plan in schedule:
        record = read_record(folder, plan)
        if record is None:
            if time.monotonic() + 60.0 * run_minutes > deadline + 1.0:
                print(f"{plan.name} and later runs are left for another call")
                break
            record = make_record(plan, folder, run_minutes)
        records.append(record)
    if not records:
        return 1
    figures = summarise(records)
    figures["seed"] = arguments.seed
    figures["runs_planned"] = len(schedule)
    draw(records, folder / "chaos.png")
    print(json.dumps({key: value for key, value in figures.items() if key != "rows"}, indent=1))
    for target, met in figures["targets"].items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("chaos", figures))
    return 0 if all(figures["targets"].values()) else 1


def read_record(folder: Path, plan: PlannedRun) -> dict[str, Any] | None:
    file = folder / f"{plan.name}.json"
    record: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return record


def make_record(plan: PlannedRun, folder: Path, minutes: float) -> dict[str, Any]:
    """Make a run and keep its record; the files of a run that met every target are removed."""
    print(f"{plan.name}: {len(plan.faults)} faults", flush=True)
    run_folder = folder / plan.name
    # The files of a run that was interrupted
    shutil.rmtree(run_folder, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix="rollcast-chaos-") as forked,
        ForkedPrograms(Path(forked), FORKED) as programs,
    ):
        record = run_part(plan, run_folder, programs, minutes)
    file = folder / f"{plan.name}.json"
    unfinished = file.with_suffix(".tmp")
    unfinished.write_text(json.dumps(record, indent=1))
    unfinished.replace(file)
    if all(summarise([record])["targets"].values()):
        shutil.rmtree(run_folder, ignore_errors=True)
    return record


if __name__ == "__main__":
    sys.exit(main())
