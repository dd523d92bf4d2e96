"""Two ways to interleave generation and training, on the same services: pipeline-k against
ppo-off-policy-k.

    python -m lab.schedules [--rounds 6] [--lag 8] [--repeats 1]

The demo's model, task and batch; generator on core 0, trainer and Redis on core 1. Both schedules
make the same `rounds` x k optimizer steps, in turn, with an evaluation before the first and after
the last. Figures are of all rounds except the first: k steps of the pipeline, one generation phase
and k updates of the other. The schedules differ in speed, staleness of the trained tokens and how
long the trainer had no update to make. The pass rates show that both train; which trains better
cannot be seen at this length. Writes lab/results/schedules.json; exit status 1 if a run made fewer
steps, missed an evaluation, or trained on a token older than its schedule allows: k steps for the
pipeline, k - 1 for the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import EVALUATIONS, STEPS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord
from testkit.record import LAB_RESULTS, write_result
from testkit.system.harness import System

GENERATOR_CORE, TRAINER_CORE = 0, 1
START_SECONDS, RUN_SECONDS = 240.0, 900.0
OLDEST = {"pipeline": lambda lag: lag, "ppo-off-policy": lambda lag: lag - 1}
"""Steps that the oldest trained token may be behind, by kind of schedule."""


def make_settings(kind: str, steps: int, lag: int) -> dict[str, Any]:
    """The demo's settings with this schedule, on pinned cores."""
    settings: dict[str, Any] = yaml.safe_load(Path("configs/demo.yaml").read_text())
    settings["run"] = kind
    settings["model"]["path"] = str(ensure_base_model(BaseModel(), lambda share: None))
    settings["tasks"]["evaluation"]["every_steps"] = steps
    settings["recipe"]["schedule"] = {"kind": kind, "max_staleness": lag}
    settings["budget"] = {"steps": steps}
    settings["generator"]["cpu"] = GENERATOR_CORE
    settings["trainer"] |= {"cpu": TRAINER_CORE, "checkpoint_every_steps": 1_000_000}
    del settings["rpc"], settings["redis"], settings["forecaster"]
    return settings


def run(kind: str, steps: int, lag: int, folder: Path) -> dict[str, Any]:
    """One whole run, and its figures."""
    with System(folder, make_settings(kind, steps, lag)) as system:
        system.start_trainer()
        system.start_generator("g0")
        for name, process in system.processes.items():
            psutil.Process(process.pid).cpu_affinity(
                [GENERATOR_CORE if name == "g0" else TRAINER_CORE]
            )
        system.wait_step(1, START_SECONDS)
        if system.wait_end(RUN_SECONDS) != 0:
            raise RuntimeError(system.log("trainer")[-3000:])
        steps_made = list(RecordFile(system.run_folder / STEPS, StepRecord).read())
        evaluations = list(RecordFile(system.run_folder / EVALUATIONS, EvaluationRecord).read())
        return measured(steps_made, evaluations, lag)


def measured(
    steps: list[StepRecord], evaluations: list[EvaluationRecord], lag: int
) -> dict[str, Any]:
    """Figures of the rounds after the first."""
    counted = steps[lag:]
    seconds = (counted[-1].at or 0.0) - (steps[lag - 1].at or 0.0)
    updates = [step.update_seconds or 0.0 for step in counted]
    ages: Counter[int] = Counter()
    for step in steps:
        ages.update(step.staleness_tokens)
    return {
        "steps": len(steps),
        "steps_per_second": len(counted) / seconds,
        "trained_tokens_per_second": sum(step.trained_tokens or 0 for step in counted) / seconds,
        "update_seconds_median": median(updates),
        "share_without_update": 1 - sum(updates) / seconds,
        "mean_staleness": sum(age * tokens for age, tokens in ages.items()) / ages.total(),
        "max_staleness": max(ages),
        "evaluations": [
            {
                name: getattr(item, name)
                for name in ("step", "pass_rate", "standard_error", "compute_device_hours")
            }
            for item in evaluations
        ],
    }


def is_sound(kind: str, result: dict[str, Any], steps: int, lag: int) -> bool:
    evaluated = [line["step"] for line in result["evaluations"]]
    return (
        result["steps"] == steps
        and evaluated == [0, steps]
        and result["max_staleness"] <= OLDEST[kind](lag)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6, help="of k optimizer steps, at least 2")
    parser.add_argument("--lag", type=int, default=8, help="k of both schedules")
    parser.add_argument("--repeats", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.rounds < 2 or arguments.lag < 1 or arguments.repeats < 1:
        parser.error("--rounds must be at least 2, --lag and --repeats at least 1")
    steps, runs = arguments.rounds * arguments.lag, []
    with tempfile.TemporaryDirectory(prefix="rollcast-schedules-") as temporary:
        for repeat in range(arguments.repeats):
            for kind in OLDEST:
                result = run(kind, steps, arguments.lag, Path(temporary) / f"{kind}-{repeat}")
                sound = is_sound(kind, result, steps, arguments.lag)
                runs.append(
                    {"schedule": f"{kind}-{arguments.lag}", "kind": kind, "sound": sound, **result}
                )
                print(json.dumps(runs[-1]), flush=True)
    speed = {
        kind: median(row["steps_per_second"] for row in runs if row["kind"] == kind)
        for kind in OLDEST
    }
    figures = {
        "runs": runs,
        "pipeline_speed_over_ppo_off_policy": speed["pipeline"] / speed["ppo-off-policy"],
    }
    print(
        "pipeline over ppo-off-policy, steps per second: "
        f"{figures['pipeline_speed_over_ppo_off_policy']:.2f}"
    )
    print(write_result("schedules", figures, LAB_RESULTS))
    return 0 if all(row["sound"] for row in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
