"""The calculator of examples/ on several seeds: does it learn over several turns, and does its frozen forecast hold?

    python -m benchmarks.calculator [--through class | endpoint] [--seeds 0 1 2 3 4]

The model is made once, by the example's own script, and kept in the cache. Each seed then runs `rollcast up` in a copy
of the example, with the seed added to the run file: run.yaml, or through_endpoint.yaml beside `python agent.py`.
Reference in the same run: repeating the last value of the moment when the forecast was frozen. Writes
results/calculator.json, or results/calculator-endpoint.json; exit status 1 if a target is missed; a run that fails is a
row of its own, and missed.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from testkit.ended_run import ended_run_figures
from testkit.gpu.system_today import EXAMPLE, ensure_example
from testkit.record import write_result
from testkit.system.audit import read_lines

RUN_FILES = {"class": "run.yaml", "endpoint": "through_endpoint.yaml"}
LIMIT_SECONDS = 1_500.0
AGENT_SECONDS = 60.0
WANTED_PASS_RATE = 0.8
WANTED_SECONDS = 600.0


def run_seed(seed: int, run_file: str, folder: Path) -> dict[str, Any]:
    """One run of the example, as a user starts it."""
    shutil.copytree(ensure_example(), folder, ignore=shutil.ignore_patterns("*.py", "*.yaml"))
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    settings = yaml.safe_load((folder / run_file).read_text())
    (folder / run_file).write_text(yaml.safe_dump(settings | {"seed": seed}))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", run_file]
    started = time.monotonic()
    beside: AbstractContextManager[dict[str, str]] = nullcontext({})
    if run_file == RUN_FILES["endpoint"]:
        beside = agent_of(folder)
    with beside as variables:
        environment = os.environ | variables
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
        )
    seconds = round(time.monotonic() - started, 1)
    figures = ended_run_figures(folder / "runs" / settings["run"]) if ended.returncode == 0 else None
    if figures is None:
        return {"seed": seed, "failed": f"exit status {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}"}
    reached = seconds_until_wanted(folder / "runs" / settings["run"])
    return {"seed": seed, "seconds": seconds, "seconds_until_wanted": reached, **figures}


@contextmanager
def agent_of(folder: Path) -> Iterator[dict[str, str]]:
    """Run the example's agent while a run with these variables goes on."""
    variables = {"ROLLCAST_HTTP_TOKEN": secrets.token_hex(16)}
    agent = subprocess.Popen([sys.executable, "agent.py"], cwd=folder, env=os.environ | variables)
    try:
        yield variables
    finally:
        agent.terminate()
        agent.wait(AGENT_SECONDS)


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
    parser.add_argument("--through", choices=sorted(RUN_FILES), default="class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="rollcast-calculator-") as folder:
        for seed in arguments.seeds:
            rows.append(run_seed(seed, RUN_FILES[arguments.through], Path(folder) / str(seed)))
            shown = {key: value for key, value in rows[-1].items() if key != "curve"}
            print(json.dumps(shown), flush=True)
    targets = judge(rows)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    name = "calculator" if arguments.through == "class" else f"calculator-{arguments.through}"
    print(write_result(name, {"seeds": rows, "targets": targets}))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
