"""A real sweep on two cores, against all its runs trained to the end: is the chosen arm the best?

    python -m benchmarks.sweep [--folder runs/sweep-benchmark] [--repetitions 3] [--tiny]

Eight recipes of the demo's task (learning rate, loss, group size), two seeds each. First all 16
runs train to the target. Then `rollcast sweep run` has three tenths of that compute, as often as
there are repetitions. On the way the processes of an arm are killed, then the sweep itself, and its
disk is full for a while. Whatever the folder holds already is not made again: a file for each whole
run, and one for each repetition. --tiny is a trial of all this with two arms of a smaller model.
Writes results/sweep.json; exit status 1 if a target is missed. Needs the right to mount a tmpfs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import yaml

from rollcast.cli.demo import shipped_config
from rollcast.cli.set_view import RunLines
from rollcast.cli.sweep.arms import PlannedSweep, plan_sweep
from rollcast.local.ablation import PlannedRun
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.local.status import RunStatus
from rollcast.local.sweep.local_runs import LocalRuns
from rollcast.local.up import View
from rollcast.runfolder.sweep_records import SliceEnding
from testkit.record import write_result
from testkit.small_disk import fill, small_disk
from testkit.system.audit import read_lines

DISK_BYTES = 3 << 30
"""Size of a sweep's disk, which can be filled: all checkpoints, and the room that a start needs."""
FULL_SECONDS = 90.0
"""How long the disk is full."""
DEADLINE_SECONDS = 3 * 3_600.0
"""Limit of one sweep."""
MARGIN = 0.02
"""Pass rate by which the chosen arm may be below the best one: the paper's margin."""
WHOLE: dict[str, Any] = {
    "grid": {
        "recipe.optimizer.learning_rate": [8.0e-6, 3.2e-5],
        "recipe.loss": [{"kind": "cispo"}, {"kind": "dapo", "clip_low": 0.2, "clip_high": 0.26}],
        "recipe.rollouts_per_prompt": [4, 16],
    },
    "seeds": 2,
    "target_device_hours": 0.15,
    "budget": {"runs": 4.8},  # three tenths of 16
    "slice": 0.15,
    "min_slice_pauses": 1,  # ten would be longer than a whole run of this size
}
TINY = WHOLE | {
    "grid": {"recipe.optimizer.learning_rate": [1.0e-6, 3.2e-5]},
    "seeds": 1,
    "target_device_hours": 0.02,
    "budget": {"device_hours": 0.2},
    "slice": 0.4,
    "min_slice_pauses": 0,
    "pause_below": 0,
    "least_gain": 0,
}


def write_files(folder: Path, sweep_folder: Path, *, tiny: bool) -> Path:
    """The run file of the demo, and the sweep file."""
    folder.mkdir(parents=True, exist_ok=True)
    base = yaml.safe_load(shipped_config("demo.yaml").read_text())
    model = BaseModel(max_digits=2, noise=0.25, steps=260) if tiny else BaseModel()
    base["model"]["path"] = str(ensure_base_model(model, lambda share: None))
    if tiny:
        base["tasks"]["dataset"] |= {"max_digits": 2, "size": 800}
        base["tasks"]["evaluation"] |= {"num_prompts": 32, "every_steps": 2}
    (folder / "run.yaml").write_text(yaml.safe_dump(base))
    settings = (TINY if tiny else WHOLE) | {
        "sweep": "s",  # a run's name has room for little more than its three settings
        "base": "run.yaml",
        "folder": str(sweep_folder),
    }
    file = folder / f"{sweep_folder.name}.yaml"
    file.write_text(yaml.safe_dump(settings, sort_keys=False))
    return file


def make_view(item: PlannedRun, look: Callable[[RunStatus], None]) -> View:
    return RunLines(item.config.run, lambda line: print(line, flush=True), look)


def train_to_the_end(sweep: PlannedSweep, results: Path) -> list[dict[str, Any]]:
    """Every run up to the target, with the mean of its last three readings."""
    runner = LocalRuns(make_view)
    results.mkdir(parents=True, exist_ok=True)
    rows = []
    for item in sweep.planned:
        result = results / f"{item.config.run}.json"
        if not result.exists():
            row = train_one(runner, item, sweep.terms.target)
            result.write_text(json.dumps(row, indent=1) + "\n")
        rows.append(json.loads(result.read_text()))
    return rows


def train_one(runner: LocalRuns, item: PlannedRun, target: float) -> dict[str, Any]:
    deadline = time.monotonic() + DEADLINE_SECONDS

    def is_over(_: bool) -> bool:
        if time.monotonic() > deadline:
            sys.exit(f"{item.config.run}: took longer than {DEADLINE_SECONDS:.0f} s")
        curve = runner.curve(item)
        return curve is not None and float(curve.compute[-1]) >= target

    outcome = runner.run_slice(item, is_over)
    if outcome.ending is not SliceEnding.PAUSED:
        sys.exit(f"{item.config.run}: {outcome.error or 'interrupted; the same command goes on'}")
    curve = runner.curve(item)
    assert curve is not None
    return {
        "run": item.config.run,
        "arm": item.variant.name,
        "seed": item.config.seed,
        "final": fmean(curve.pass_rate[-3:].tolist()),
        "curve": [
            [round(x, 5), round(y, 4)]
            for x, y in zip(curve.compute.tolist(), curve.pass_rate.tolist(), strict=True)
        ],
    }


class FaultySweep:
    """`rollcast sweep run` until its end, with three faults on the way."""

    def __init__(self, file: Path, disk: Path, log: Path) -> None:
        self._command = [sys.executable, "-m", "rollcast.cli.main", "sweep", "run", str(file)]
        self._disk = disk
        self._folder = disk / "sweep"
        self._log = log
        self._pending = [self._kill_an_arm, self._kill_the_sweep, self._fill_the_disk]
        self.faults: list[str] = []
        self.starts = 0

    def run(self) -> float:
        """Seconds it took. Raises RuntimeError if the sweep does not come to its end."""
        began = time.monotonic()
        while True:
            process = self._start()
            try:
                while process.poll() is None:
                    if self._pending and self._slice_trains(len(self.faults) + 1):
                        self._pending.pop(0)(process)
                    time.sleep(1.0)
                    if time.monotonic() > began + DEADLINE_SECONDS:
                        raise RuntimeError(f"the sweep takes too long; see {self._log}")
            finally:
                process.kill()
                process.wait()
            if process.returncode == 0:
                return time.monotonic() - began
            if self.starts > len(self.faults) + 1:
                raise RuntimeError(f"the sweep ended by itself; see {self._log}")

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command, stdout=log, stderr=log, env=os.environ | {"HF_HUB_OFFLINE": "1"}
            )

    def _slice_trains(self, number: int) -> bool:
        """Whether that many slices have begun, and the newest one has made a step."""
        slices = [
            line for line in read_lines(self._folder / "sweep.jsonl") if line["event"] == "slice"
        ]
        if len(slices) < number:
            return False
        steps: Path = self._folder / slices[-1]["run"] / "steps.jsonl"
        began_at: float = slices[-1]["at"]
        return steps.exists() and steps.stat().st_mtime > began_at

    def _kill_an_arm(self, process: subprocess.Popen[bytes]) -> None:
        """All processes of the run that trains."""
        children = psutil.Process(process.pid).children()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        self.faults.append(f"{len(children)} processes of an arm killed")

    def _kill_the_sweep(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        self.faults.append("the sweep killed")

    def _fill_the_disk(self, process: subprocess.Popen[bytes]) -> None:
        filler = fill(self._disk, but_bytes=0)
        with suppress(subprocess.TimeoutExpired):
            process.wait(FULL_SECONDS)
        ended = "went on" if process.poll() is None else f"ended with {process.returncode}"
        filler.unlink()
        self.faults.append(f"the disk full; the sweep {ended}")


def repeat(folder: Path, number: int, *, tiny: bool) -> dict[str, Any]:
    """One repetition: the answer of the sweep, and the faults that it survived."""
    with small_disk(folder / f"disk-{number}", DISK_BYTES) as disk:
        file = write_files(folder, disk / "sweep", tiny=tiny)
        faulty = FaultySweep(file, disk, folder / f"sweep-{number}.log")
        seconds = faulty.run()
        answer = json.loads((disk / "sweep" / "sweep.json").read_text())
        lines = read_lines(disk / "sweep" / "sweep.jsonl")
    (folder / f"disk-{number}").rmdir()
    # Paths of this machine, which say nothing elsewhere
    del answer["folder"], answer["go_on"]
    for arm in answer["arms"]:
        for run in arm["runs"]:
            del run["folder"]
            run["readings"] = len(run["readings"])
    return {
        "minutes": round(seconds / 60.0, 1),
        "faults": faulty.faults,
        "starts": faulty.starts,
        "endings": [line["ending"] for line in lines if line["event"] == "end"],
        **answer,
    }


def judge(finals: list[dict[str, Any]], repetition: dict[str, Any]) -> dict[str, Any]:
    """How far the chosen arm is below the best, and how far it may be."""
    by_arm: dict[str, list[float]] = {}
    for row in finals:
        by_arm.setdefault(row["arm"], []).append(row["final"])
    means = {arm: fmean(values) for arm, values in by_arm.items()}
    squares = [(value - means[arm]) ** 2 for arm, values in by_arm.items() for value in values]
    freedom = sum(len(values) - 1 for values in by_arm.values())
    num_seeds = len(finals) / len(by_arm)
    # Of the difference of two arms' means, by the spread between seeds of all arms
    error = (2.0 * sum(squares) / max(freedom, 1) / num_seeds) ** 0.5
    best = max(means, key=means.__getitem__)
    return {
        "chosen": repetition["chosen"],
        "best": best,
        "regret": round(means[best] - means[repetition["chosen"]], 4),
        "allowed": round(max(MARGIN, 2.0 * error), 4),
        "means": {arm: round(mean, 4) for arm, mean in means.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/sweep-benchmark"))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--tiny", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    file = write_files(folder, folder / "whole", tiny=arguments.tiny)
    finals = train_to_the_end(plan_sweep(file), folder / "finals")
    rows = []
    for number in range(1, arguments.repetitions + 1):
        result = folder / f"repetition-{number}.json"
        if not result.exists():
            row = repeat(folder, number, tiny=arguments.tiny)
            result.write_text(json.dumps(row, indent=1) + "\n")
        rows.append(json.loads(result.read_text()))
    judged = [judge(finals, row) for row in rows]
    targets = {
        "the chosen arm is as good as the best, in every repetition": all(
            row["regret"] <= row["allowed"] for row in judged
        ),
        "every sweep survives a killed arm, its own kill and a full disk": all(
            len(row["faults"]) == 3 and row["is_over"] for row in rows
        ),
        "no arm is left out for a fault that was not its own": not any(
            run["failure"] for row in rows for arm in row["arms"] for run in arm["runs"]
        ),
        "no more than the budget is spent, up to an evaluation and a stop": all(
            row["spent"] <= 1.1 * row["budget"] for row in rows
        ),
    }
    for row in judged:
        print(json.dumps(row))
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    figures = {"finals": finals, "repetitions": rows, "judged": judged, "targets": targets}
    if arguments.tiny:
        return 0 if all(targets.values()) else 1
    print(write_result("sweep", figures))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
