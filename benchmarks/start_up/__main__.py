"""How long `rollcast up` takes to its first optimizer step, what takes the time, and how soon
Ctrl-C ends it.

    python -m benchmarks.start_up [--starts 3] [--stops 0.5 2 4 8 12 step] [--repetitions 3]

The demo's run with its base model (trained first if it is not cached); a first start that warms the
caches does not count. For each start: seconds from the command to each part's being there, and the
processor seconds of each process up to the first step. For each stop: how long after the signal the
command and everything it had started were gone; `step` = after some steps, when a checkpoint is
written. What an interrupt promises: 5 s before anything was made, drain_seconds + 10 s later.
Writes results/start_up.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from rollcast.config.run import load_run_config
from rollcast.connections.port_files import port_file
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.runfolder.files import EVALUATIONS, INCARNATIONS, STEPS
from testkit.record import write_result

DEMO = Path(__file__).parents[2] / "configs" / "demo.yaml"
LIMIT_SECONDS = 300.0
STEPS_BEFORE_STOP = 3
SAMPLE_SECONDS = 0.1


class Start:
    """One `rollcast up` in a folder of its own."""

    def __init__(self, folder: Path, model: Path) -> None:
        settings = yaml.safe_load(DEMO.read_text())
        settings |= {"run": "start", "folder": str(folder)}
        settings["model"]["path"] = str(model)
        folder.mkdir()
        file = folder / "run.yaml"
        file.write_text(yaml.safe_dump(settings))
        self.config = load_run_config(file)
        self.run = folder / "start"
        self._cpu: dict[int, tuple[str, float]] = {}
        self._seen: dict[int, psutil.Process] = {}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            # A shell in the background has its children ignore Ctrl-C.
            [
                "env",
                "--default-signal=INT",
                sys.executable,
                "-m",
                "rollcast.cli.main",
                "up",
                "--config",
                str(file),
            ],
            stdout=(folder / "said").open("wb"),
            stderr=subprocess.STDOUT,
        )

    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 2)

    def steps(self) -> int:
        file = self.run / STEPS
        return len(file.read_text().splitlines()) if file.exists() else 0

    def family(self) -> list[psutil.Process]:
        """Every process that was ever seen below the command, with it."""
        try:
            parent = psutil.Process(self.process.pid)
            for process in [parent, *parent.children(recursive=True)]:
                self._seen.setdefault(process.pid, process)
        except psutil.NoSuchProcess:
            pass
        return list(self._seen.values())

    def sample(self) -> None:
        """Take down what each process has used; the last figure of one that has ended stays."""
        for process in self.family():
            try:
                times = process.cpu_times()
                self._cpu[process.pid] = (
                    process_name(process, self.process.pid),
                    times.user + times.system,
                )
            except psutil.Error:
                continue

    def cpu(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, seconds in self._cpu.values():
            found[name] = round(found.get(name, 0.0) + seconds, 2)
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def reach(self, steps: int) -> dict[str, float]:
        """Wait for this many steps; return the seconds at which each part was ready."""
        marks = {
            "trainer has its model": port_file(self.run, "trainer"),
            "trainer works": self.run / INCARNATIONS,
            "engine is up": port_file(self.run, "generator-0"),
            "first evaluation": self.run / EVALUATIONS,
        }
        at: dict[str, float] = {}
        while self.steps() < steps:
            if self.process.poll() is not None or self.seconds() > LIMIT_SECONDS:
                raise RuntimeError((self.run.parent / "said").read_text()[-2000:])
            at |= {
                name: self.seconds()
                for name, file in marks.items()
                if name not in at and file.exists()
            }
            if "first step" not in at and self.steps():
                at["first step"] = self.seconds()
            if not at.get("first step"):
                self.sample()
            time.sleep(SAMPLE_SECONDS)
        at.setdefault("first step", self.seconds())
        return at

    def stop(self) -> dict[str, Any]:
        """Ctrl-C; seconds until the command has ended, and until nothing of it was left."""
        is_made = self.steps() > 0 or (self.run / EVALUATIONS).exists()
        family, asked = self.family(), time.monotonic()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(LIMIT_SECONDS)
        ended = time.monotonic() - asked
        psutil.wait_procs(family, timeout=LIMIT_SECONDS)
        text = (self.run.parent / "said").read_text()
        said = [
            line
            for line in text.splitlines()
            if "killed" in line or "cut short" in line or "still saves" in line
        ]
        return {
            "exit_status": code,
            "promised_seconds": self.config.generator.drain_seconds + 10.0 if is_made else 5.0,
            "ended_seconds": round(ended, 2),
            "all_gone_seconds": round(time.monotonic() - asked, 2),
            "killed": said,
        }


def process_name(process: psutil.Process, command: int) -> str:
    """The part of a run that a process is; `command`: the number of `rollcast up`'s process."""
    if process.pid == command:
        return "up"
    words = " ".join(process.cmdline())
    for part in (
        "redis-server",
        "rollcast.forecaster",
        "rollcast.trainer",
        "rollcast.generator",
        "EngineCore",
    ):
        if part in words:
            return part.removeprefix("rollcast.")
    return "others"


def measure_start(folder: Path, model: Path) -> dict[str, Any]:
    start = Start(folder, model)
    try:
        return {
            "load_before": os.getloadavg()[0],
            "seconds": start.reach(1),
            "processor_seconds": start.cpu(),
        }
    finally:
        start.process.send_signal(signal.SIGINT)
        start.process.wait(LIMIT_SECONDS)


def measure_stop(folder: Path, model: Path, moment: str) -> dict[str, Any]:
    start = Start(folder, model)
    if moment == "step":
        start.reach(STEPS_BEFORE_STOP)
    else:
        time.sleep(float(moment))
    return {"after": moment, "steps_made": start.steps(), **start.stop()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--stops", nargs="*", default=["0.5", "2", "4", "8", "12", "step"])
    parser.add_argument("--repetitions", type=int, default=3, help="of every stop")
    arguments = parser.parse_args()
    model = ensure_base_model(BaseModel(), lambda share: None)
    figures: dict[str, Any] = {
        "drain_seconds": load_run_config(DEMO).generator.drain_seconds,
        "starts": [],
        "stops": [],
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_start(folder / "warm", model)
        for number in range(arguments.starts):
            figures["starts"].append(measure_start(folder / f"start-{number}", model))
            print(json.dumps(figures["starts"][-1], indent=1), flush=True)
        for number in range(arguments.repetitions):
            for moment in arguments.stops:
                stop = measure_stop(folder / f"stop-{moment}-{number}", model, moment)
                figures["stops"].append({"load_before": os.getloadavg()[0], **stop})
                print(json.dumps(figures["stops"][-1]), flush=True)
    print(write_result("start_up", figures))


if __name__ == "__main__":
    main()
