"""Are long answers trained on as often as short ones, and how much later? A real run with one
generator slowed.

    python -m lab.length_bias [--steps 60] [--share 0.15]

Two generators, additions of 1 to 4 digits (completions of 8 to 60 tokens), k = 4; the second
generator runs only for `share` of the time over the first two thirds of the run. Tasks dispatched
before the last k + 2 steps are put into deciles by their longest rollout: each decile's used and
filtered share of the dispatched tasks, and the delay from dispatch to use. Writes
lab/results/length_bias.json; exit status 1 if a task was dropped or a token was too old.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path
from statistics import median
from typing import Any

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import STEPS, TASKS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import StepRecord, TaskMark
from testkit.record import LAB_RESULTS, write_result
from testkit.system.harness import System, wait_for

LAG, GROUPS_PER_STEP = 4, 8
START_SECONDS, RUN_SECONDS, JOIN_SECONDS = 240.0, 900.0, 10.0


def make_settings(steps: int) -> dict[str, Any]:
    return {
        "run": "length-bias",
        "model": {
            "path": str(ensure_base_model(BaseModel(), lambda share: None)),
            "dtype": "float32",
            "max_length": 128,
        },
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 4, "size": 4000},
            "evaluation": {"num_prompts": 16, "rollouts_per_prompt": 4, "every_steps": 1_000_000},
        },
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": LAG},
            "length_control": {"kind": "none"},
            "prompts_per_step": GROUPS_PER_STEP,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 56,
            "optimizer": {"learning_rate": 3e-5, "warmup_steps": 2},
        },
        "budget": {"steps": steps},
        "generator": {"slots": 64, "block_size": 32, "drain_seconds": 3},
        "trainer": {
            "tokens_per_micro_batch": 4096,
            "threads": 1,
            "checkpoint_every_steps": 1_000_000,
        },
    }


def run(folder: Path, steps: int, share: float) -> tuple[list[StepRecord], list[TaskMark]]:
    """What the run wrote down of its steps and of its tasks."""
    with System(folder, make_settings(steps)) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(lambda: system.last_step >= 2, START_SECONDS, "the first steps")
        slowing = threading.Thread(target=slow_until, args=(system, steps * 2 // 3, share))
        slowing.start()
        ended = system.wait_end(RUN_SECONDS)
        slowing.join(JOIN_SECONDS)
        if ended != 0:
            raise RuntimeError(system.log("trainer")[-3000:])
    made = (
        RecordFile(system.run_folder / STEPS, StepRecord),
        RecordFile(system.run_folder / TASKS, TaskMark),
    )
    return list(made[0].read()), list(made[1].read())


def slow_until(system: System, step: int, share: float) -> None:
    while system.last_step < step and system.processes["trainer"].poll() is None:
        system.slow_down("g1", share, 1.0)


def deciles(marks: list[TaskMark], last_step: int) -> list[dict[str, Any]]:
    """One row per decile of the longest rollout's tokens;
    settled tasks alone have a known length.
    """
    cut = next(
        i
        for i, mark in enumerate(marks)
        if mark.what == "step" and mark.step == last_step - LAG - 2
    )
    dispatched = {
        task: mark.at or 0.0
        for mark in marks[:cut]
        if mark.what == "dispatched"
        for task in mark.tasks
    }
    settled = {
        task: mark for mark in marks if mark.what in ("used", "filtered") for task in mark.tasks
    }
    longest = {task: mark.longest or 0 for task, mark in settled.items()}
    missing = dispatched.keys() - settled.keys()
    if missing:
        raise RuntimeError(f"dispatched, but neither used nor filtered: {sorted(missing)}")
    ordered = sorted(dispatched, key=lambda task: longest[task])
    rows = []
    for decile in range(10):
        tasks = ordered[len(ordered) * decile // 10 : len(ordered) * (decile + 1) // 10]
        delays = sorted((settled[task].at or 0.0) - dispatched[task] for task in tasks)
        rows.append(
            {
                "decile": decile,
                "longest_tokens": [longest[tasks[0]], longest[tasks[-1]]],
                "dispatched": len(tasks),
                "used": sum(settled[task].what == "used" for task in tasks),
                "filtered": sum(settled[task].what == "filtered" for task in tasks),
                "delay_seconds_median": round(median(delays), 2),
                "delay_seconds_90": round(delays[int(0.9 * (len(delays) - 1))], 2),
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--share", type=float, default=0.15, help="of the time that the slowed generator runs"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rollcast-length-") as folder:
        steps, tasks = run(Path(folder), arguments.steps, arguments.share)
    oldest = max(age for step in steps for age in step.staleness_tokens)
    dropped = sum(mark.what in ("redone", "dead", "stale") for mark in tasks)
    figures = {
        "k": LAG,
        "oldest_token": oldest,
        "dropped": dropped,
        "handed_over": sum(mark.what == "handed_over" for mark in tasks),
        "deciles": deciles(tasks, steps[-1].step),
    }
    print(json.dumps(figures, indent=1))
    print(write_result("length_bias", figures, LAB_RESULTS))
    return 0 if oldest <= LAG and not dropped else 1


if __name__ == "__main__":
    sys.exit(main())
