"""1 -> 4 -> 1 generators in a real run: is a task lost or done twice, a token too old, does the
trainer wait less?

    python -m benchmarks.elastic [--seconds 60] [--share 0.2]

Generators are started and drained as pods are: a process that joins, SIGTERM and exit 0. One
machine stands for several, so each generator runs only `share` of the time (stopped and continued
ten times a second, from when it has joined): as if it had a device of its own that is slower by
that factor. The real autoscaler reads the same pages and states its number, which is not applied.
Writes results/elastic.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from rollcast.connections.port_files import port_file, read_port
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import STEPS, TASKS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import StepRecord
from rollcast.trainer.ending import EXIT_INTERRUPTED
from testkit.record import write_result
from testkit.system.audit import (
    SETTLED,
    check_every_task_once,
    check_nothing_was_left_behind,
    surviving_lines,
)
from testkit.system.harness import System, wait_for

LAG = 4
START_SECONDS, JOIN_SECONDS, STEP_SECONDS = 240.0, 240.0, 120.0
PERIOD_SECONDS = 0.1
ADDED = ("g1", "g2", "g3")
WAIT = "rollcast_trainer_wait_seconds_total"


def make_settings() -> dict[str, Any]:
    return {
        "run": "elastic",
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
            "prompts_per_step": 8,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 56,
            "optimizer": {"learning_rate": 3e-5, "warmup_steps": 2},
        },
        "budget": {"steps": 100_000},
        "generator": {"slots": 64, "block_size": 32, "drain_seconds": 1},
        "trainer": {
            "tokens_per_micro_batch": 4096,
            "threads": 1,
            "checkpoint_every_steps": 1_000_000,
        },
        "autoscaler": {
            "mode": "hpa",
            "http_port": 0,
            "every_seconds": 1,
            "window_seconds": 15,
            "start_up_seconds": 20,
            "lower_after_seconds": 30,
            "lower_every_seconds": 5,
            "hpa_tolerance": 0,
            "most": 8,
        },
    }


class Throttle:
    """Lets a generator and its engine run only a share of the time, until it is taken off or has
    ended.
    """

    def __init__(self, system: System, name: str, share: float) -> None:
        self._process = system.processes[name]
        self._share = share
        self._off = threading.Event()
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def take_off(self) -> None:
        self._off.set()
        self._thread.join(5.0)

    def _go(self) -> None:
        with suppress(ProcessLookupError):
            while self._process.poll() is None and not self._off.is_set():
                os.killpg(self._process.pid, signal.SIGSTOP)
                time.sleep(PERIOD_SECONDS * (1 - self._share))
                os.killpg(self._process.pid, signal.SIGCONT)
                time.sleep(PERIOD_SECONDS * self._share)


def joined(system: System) -> int:
    return round(
        system.metrics("trainer").get(("rollcast_generators", (("state", "joined"),)), 0.0)
    )


def measure(system: System, seconds: float, generators: int) -> dict[str, Any]:
    """One phase, from the end of a step on."""
    step = system.last_step
    wait_for(lambda: system.last_step > step, STEP_SECONDS, "a step")
    before, first, begun = system.metrics("trainer"), system.last_step, time.monotonic()
    time.sleep(seconds)
    after, last, passed = system.metrics("trainer"), system.last_step, time.monotonic() - begun
    assert joined(system) == generators
    waits = {
        dict(labels)["for"]: round((value - before.get((name, labels), 0.0)) / passed, 4)
        for (name, labels), value in after.items()
        if name == WAIT
    }
    return {
        "generators": generators,
        "seconds": round(passed, 1),
        "steps_per_minute": round(60 * (last - first) / passed, 2),
        "trainer_wait_share": waits,
        "autoscaler_wants": wanted(system),
        "autoscaler_says": said(system),
    }


def wanted(system: System) -> int | None:
    value = system.metrics("autoscaler").get(("rollcast_generators_desired", ()))
    return None if value is None else round(value)


def said(system: System) -> str:
    port = read_port(port_file(system.run_folder, "autoscaler"))
    return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5.0).text.strip()


def run(folder: Path, seconds: float, share: float) -> dict[str, Any]:
    with System(folder, make_settings()) as system:
        system.start_trainer()
        system.start_generator("g0")
        wait_for(lambda: system.last_step >= 2, START_SECONDS, "the first steps")
        system._start(
            "autoscaler",
            [sys.executable, "-m", "rollcast.autoscaler", "--config", str(system.config)],
        )
        throttles = {"g0": Throttle(system, "g0", share)}
        phases = [measure(system, seconds, 1)]

        begun = time.monotonic()
        for name in ADDED:
            system.start_generator(name)
        wait_for(lambda: joined(system) == 1 + len(ADDED), JOIN_SECONDS, "joining")
        scaled_up = time.monotonic() - begun
        throttles |= {name: Throttle(system, name, share) for name in ADDED}
        phases.append(measure(system, seconds, 4))

        begun = time.monotonic()
        for name in ADDED:
            system.stopped_services.add(name)
            system.processes[name].terminate()
        codes = [system.processes[name].wait(60.0) for name in ADDED]
        wait_for(lambda: joined(system) == 1, JOIN_SECONDS, "leaving")
        scaled_down = time.monotonic() - begun
        phases.append(measure(system, seconds, 1))
        # So that everything dispatched while there were four has been settled when the books are
        # read.
        last = system.last_step
        wait_for(lambda: system.last_step >= last + LAG + 3, 10 * STEP_SECONDS, "the last steps")

        fenced = sum(
            value
            for (name, _), value in system.metrics("trainer").items()
            if name == "rollcast_generators_fenced_total"
        )
        refused = system.groups("refused")
        throttles["g0"].take_off()
        ended = system.terminate("trainer")
        assert ended == EXIT_INTERRUPTED, system.log("trainer")[-3000:]
    return {
        "share_of_the_time_that_a_generator_runs": share,
        "phases": phases,
        "seconds_to_scale_up": round(scaled_up, 1),
        "seconds_to_scale_down": round(scaled_down, 1),
        "exit_codes_of_drained": codes,
        "generators_fenced": fenced,
        "groups_refused": refused,
        **books(
            list(RecordFile(system.run_folder / STEPS, StepRecord).read()), system.lines(TASKS)
        ),
    }


def books(steps: Sequence[StepRecord], lines: list[dict[str, Any]]) -> dict[str, Any]:
    """`lines`: of tasks.jsonl, for the testkit's accountant, which reads them independently.

    Raises AssertionError if a task was given out twice or left behind, however it ended."""
    settled = Counter(
        task for line in surviving_lines(lines) if line["what"] in SETTLED for task in line["tasks"]
    )
    twice = sum(count > 1 for count in settled.values())
    outcomes = {} if twice else check_every_task_once(lines)
    check_nothing_was_left_behind(lines, LAG)
    redone = sum(len(line["tasks"]) for line in lines if line["what"] == "redone")
    return {
        "steps": len(steps),
        "max_staleness": LAG,
        "oldest_token_trained": max(age for step in steps for age in step.staleness_tokens),
        "tasks_by_outcome": outcomes,
        "tasks_lost": redone + sum(outcomes.get(outcome, 0) for outcome in ("dead", "stale")),
        "tasks_duplicated": twice,
    }


def targets(figures: dict[str, Any]) -> dict[str, bool]:
    one, four, again = (
        phase["trainer_wait_share"].get("batch", 0.0) for phase in figures["phases"]
    )
    return {
        "no task lost": figures["tasks_lost"] == 0 and figures["generators_fenced"] == 0,
        "no task done twice": figures["tasks_duplicated"] == 0,
        "no token over the staleness bound": figures["oldest_token_trained"] <= LAG,
        "drained generators end with 0": set(figures["exit_codes_of_drained"]) == {0},
        "the trainer waits less with four generators": four < min(one, again),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="length of each of the three phases"
    )
    parser.add_argument(
        "--share", type=float, default=0.2, help="share of the time that a generator runs"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rollcast-elastic-") as folder:
        figures = run(Path(folder), arguments.seconds, arguments.share)
    figures["targets"] = targets(figures)
    path = write_result("elastic", figures)
    print(json.dumps(figures, indent=1))
    for target, met in figures["targets"].items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(f"written to {path}")
    return 0 if all(figures["targets"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
