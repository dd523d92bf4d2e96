"""The calculator of examples/ on several seeds: does it learn over several turns, and does its
frozen forecast hold?

    python -m benchmarks.calculator [--through class | endpoint] [--seeds 0 1 2 3 4]
                                    [--at-once 1] [--minutes 25]

The model is made once, by the example's own script, and kept in the cache. Each seed then runs
`rollcast up` in a copy of the example, with the seed added to the run file: run.yaml, or
through_endpoint.yaml beside `python agent.py`. On a GPU several runs share it, each with a
twentieth of its memory for vLLM; the time until 0.8 is then not judged. Reference in the same run:
repeating the last value of the moment when the forecast was frozen. Writes results/calculator.json,
or results/calculator-endpoint.json, of a GPU gpu-calculator...; exit status 1 if a target is
missed; a run that fails, or does not end in time, is a row of its own, and missed.
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
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from rollcast.local.devices import usable_gpus
from testkit.ended_run import ended_run_figures
from testkit.gpu.card import first_card
from testkit.gpu.live_run import surroundings
from testkit.gpu.system_today import EXAMPLE, ensure_example
from testkit.record import write_result
from testkit.system.audit import read_lines

RUN_FILES = {"class": "run.yaml", "endpoint": "through_endpoint.yaml"}
FIRST_PORT = 8500
"""Port of the endpoint for seed 0. Each seed has its own, so that several runs can listen."""
ON_A_GPU = {"slots": 128, "block_size": 32, "gpu_memory_utilization": 0.05, "gpu_kv_cache_gib": 1}
"""Settings of a generator that shares a GPU with several runs."""
AGENT_SECONDS = 60.0
WANTED_PASS_RATE = 0.8
WANTED_SECONDS = 600.0


def run_seed(seed: int, through: str, folder: Path, limit_seconds: float) -> dict[str, Any]:
    """One run of the example, as a user starts it."""
    shutil.copytree(ensure_example(), folder, ignore=shutil.ignore_patterns("*.py", "*.yaml"))
    shutil.copytree(
        EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    settings = settings_of(seed, through)
    (folder / "seed.yaml").write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", "seed.yaml"]
    run = folder / "runs" / settings["run"]
    started = time.monotonic()
    beside: AbstractContextManager[dict[str, str]] = nullcontext({})
    if through == "endpoint":
        beside = agent_of(folder, settings["generator"]["http_port"])
    with beside as variables:
        environment = surroundings(has_card=True) if usable_gpus() else dict(os.environ)
        try:
            ended = subprocess.run(
                command,
                cwd=folder,
                env=environment | variables,
                capture_output=True,
                text=True,
                timeout=limit_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {
                "seed": seed,
                "failed": f"it did not end within {limit_seconds:.0f} s",
                "curve": curve(run),
            }
    seconds = round(time.monotonic() - started, 1)
    figures = ended_run_figures(run) if ended.returncode == 0 else None
    if figures is None:
        why = f"exit status {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}"
        return {"seed": seed, "failed": why, "curve": curve(run)}
    return {
        "seed": seed,
        "seconds": seconds,
        "seconds_until_wanted": seconds_until_wanted(run),
        **figures,
    }


def settings_of(seed: int, through: str) -> dict[str, Any]:
    """The example's run file with this seed."""
    settings: dict[str, Any] = yaml.safe_load((EXAMPLE / RUN_FILES[through]).read_text()) | {
        "seed": seed
    }
    if usable_gpus():
        settings["generator"] = dict(ON_A_GPU)
    if through == "endpoint":
        settings["generator"]["http_port"] = FIRST_PORT + seed
    return settings


@contextmanager
def agent_of(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Run the example's agent while a run with these variables goes on."""
    variables = {"ROLLCAST_HTTP_TOKEN": secrets.token_hex(16)}
    command = [sys.executable, "agent.py", f"http://127.0.0.1:{port}"]
    agent = subprocess.Popen(command, cwd=folder, env=os.environ | variables)
    try:
        yield variables
    finally:
        agent.terminate()
        agent.wait(AGENT_SECONDS)


def curve(run: Path) -> list[list[float]]:
    """Step and pass rate of each evaluation."""
    return [
        [line["step"], round(line["pass_rate"], 4)]
        for line in read_lines(run / "evaluations.jsonl")
    ]


def seconds_until_wanted(run: Path) -> float | None:
    """Seconds from the first step to the step of the first evaluation at the wanted rate; None = it
    was not reached.
    """
    made_at = {line["step"]: line["at"] for line in read_lines(run / "steps.jsonl")}
    for line in read_lines(run / "evaluations.jsonl"):
        if line["pass_rate"] >= WANTED_PASS_RATE:
            return float(round(made_at[line["step"]] - min(made_at.values()), 1))
    return None


def judge(rows: list[dict[str, Any]], *, has_gpu: bool) -> dict[str, bool]:
    """The targets, for all seeds together."""
    if any("failed" in row for row in rows):
        return {"every run ends with a frozen forecast": False}
    needed = len(rows) - 1 if len(rows) > 1 else 1
    errors = [abs(row["error"]) for row in rows]
    targets = {
        "final pass rate >= 0.8 in all": all(
            row["measured_end"] >= WANTED_PASS_RATE for row in rows
        ),
        "better than the last value on average": fmean(errors)
        <= fmean(abs(row["last_value_error"]) for row in rows),
        "interval holds the end in all but one": sum(row["interval_holds_end"] for row in rows)
        >= needed,
        "no token older than k = 8": all(row["max_staleness"] <= 8 for row in rows),
    }
    if not has_gpu:
        targets["a pass rate of 0.8 within ten minutes in all"] = all(
            row["seconds_until_wanted"] is not None and row["seconds_until_wanted"] < WANTED_SECONDS
            for row in rows
        )
    return targets


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--through", choices=sorted(RUN_FILES), default="class")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--at-once", type=int, default=1, help="runs that go on at the same time")
    parser.add_argument("--minutes", type=float, default=25.0, help="limit of each run")
    arguments = parser.parse_args()
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="rollcast-calculator-") as folder,
        ThreadPoolExecutor(arguments.at_once) as pool,
    ):

        def run(seed: int) -> dict[str, Any]:
            return run_seed(
                seed, arguments.through, Path(folder) / str(seed), 60 * arguments.minutes
            )

        for row in pool.map(run, arguments.seeds):
            rows.append(row)
            shown = {key: value for key, value in row.items() if key != "curve"}
            print(json.dumps(shown), flush=True)
            write(arguments, rows)
    targets = judge(rows, has_gpu=first_card() is not None)
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write(arguments, rows))
    return 0 if all(targets.values()) else 1


def write(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> Path:
    """The result of the seeds that have ended: a later one may take long."""
    card = first_card()
    name = "calculator" if arguments.through == "class" else f"calculator-{arguments.through}"
    figures = {
        "at_once": arguments.at_once,
        "seeds": rows,
        "targets": judge(rows, has_gpu=card is not None),
    }
    return (
        write_result(name, figures)
        if card is None
        else write_result(f"gpu-{name}", {"card": card} | figures)
    )


if __name__ == "__main__":
    sys.exit(main())
