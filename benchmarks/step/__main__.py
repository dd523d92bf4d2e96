"""Seconds a step of `rollcast up`, paired with an earlier commit, with TRL, or with both.

    python -m benchmarks.step --against COMMIT [--pairs 5] [--steps 60]
    python -m benchmarks.step --trl ENVIRONMENT/bin/python  # an environment with trl==1.16.0

The demo's model and task, 16 x 8 completions, no evaluation but before the first and after the last
step, and no checkpoint. In every pair this checkout runs first, then the others, so that all of
them see the same machine. A run is what a user starts: `rollcast up`, without OMP_NUM_THREADS or
any other variable that only a benchmark would set. An earlier commit runs with the packages of this
environment. The first 10 steps fill the pipeline and do not count. The median of the ratios over
the pairs counts. Also reports the processor seconds of a step, by process, and the wall seconds of
1,000 trained tokens. Writes results/step.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.short_demo import DEMO
from benchmarks.start_up.__main__ import process_name
from rollcast.config.run import load_run_config
from rollcast.config.yaml_loader import load_yaml
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.tasks.prompts import load
from testkit.record import write_result

ROOT = Path(__file__).parents[2]
TRL_PROGRAM = Path(__file__).with_name("trl_run.py")
WARM_UP_STEPS = 10
NEVER = 1_000_000
RUN_SECONDS = 900.0
MAX_RATIO_TO_COMMIT, MAX_RATIO_TO_TRL = 1.0, 0.85
SET_BY_BENCHMARKS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONPATH")
ROLES = {"EngineCore": "engine", "generator": "front end", "trainer": "trainer"}
"""By the process's name; all others together are the rest."""
Figures = dict[str, Any]
"""Figures of one run: `seconds_a_step`; of Rollcast also `seconds_a_thousand_tokens` and
`processor_seconds_a_step`, by role."""
Measure = Callable[[Path], Figures]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="COMMIT", help="an earlier commit of this repository")
    parser.add_argument(
        "--trl", metavar="PYTHON", help="the interpreter of an environment with TRL"
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    if not arguments.against and not arguments.trl:
        parser.error("name what to compare with: --against COMMIT, --trl PYTHON, or both")
    with (
        tempfile.TemporaryDirectory(prefix="rollcast-step-") as temporary,
        sources(arguments.against) as earlier,
    ):
        measures: dict[str, Measure] = {
            "rollcast": lambda folder: measure_run(ROOT, folder, arguments.steps)
        }
        if earlier is not None:
            measures["commit"] = lambda folder: measure_run(earlier, folder, arguments.steps)
        if arguments.trl:
            measures["trl"] = lambda folder: {
                "seconds_a_step": trl_seconds_a_step(arguments.trl, folder, arguments.steps)
            }
        pairs = []
        for number in range(arguments.pairs):
            pairs.append(
                {name: run(Path(temporary) / f"{number}-{name}") for name, run in measures.items()}
            )
            print(json.dumps(pairs[-1]), flush=True)
    return report(arguments, pairs)


def report(arguments: argparse.Namespace, runs: list[dict[str, Figures]]) -> int:
    pairs = [{name: run["seconds_a_step"] for name, run in pair.items()} for pair in runs]
    limits = {"commit": MAX_RATIO_TO_COMMIT, "trl": MAX_RATIO_TO_TRL}
    ratios = {
        other: [pair["rollcast"] / pair[other] for pair in pairs]
        for other in limits
        if other in pairs[0]
    }
    targets = {
        f"at most {limits[other]} of {other}": median(found) <= limits[other]
        for other, found in ratios.items()
    }
    figures: dict[str, Any] = {
        "against": arguments.against,
        "steps": arguments.steps,
        "seconds_a_step": pairs,
        "median_seconds_a_step": {name: median(pair[name] for pair in pairs) for name in pairs[0]},
        "ratios": ratios,
        "median_seconds_a_thousand_tokens": {
            name: median(pair[name]["seconds_a_thousand_tokens"] for pair in runs)
            for name in sorted(runs[0].keys() - {"trl"})
        },
        "median_processor_seconds_a_step": {
            name: {
                role: median(pair[name]["processor_seconds_a_step"][role] for pair in runs)
                for role in (*ROLES.values(), "rest")
            }
            for name in sorted(runs[0].keys() - {"trl"})
        },
        "median_ratio": {other: median(found) for other, found in ratios.items()},
        "targets": targets,
    }
    print(
        json.dumps(
            {name: value for name, value in figures.items() if name.startswith("median")}, indent=1
        )
    )
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("step", figures))
    return 0 if all(targets.values()) else 1


@contextmanager
def sources(commit: str | None) -> Iterator[Path | None]:
    """A folder with the commit's files; None without a commit."""
    if commit is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="rollcast-step-source-") as temporary:
        archive = Path(temporary) / "source.tar"
        git = [
            "git",
            "-C",
            str(ROOT),
            "archive",
            "--output",
            str(archive),
            commit,
            "services",
            "configs",
        ]
        subprocess.run(git, check=True, timeout=60)
        subprocess.run(["tar", "-xf", str(archive), "-C", temporary], check=True, timeout=60)
        yield Path(temporary)


def run_settings(folder: Path, steps: int) -> dict[str, Any]:
    settings: dict[str, Any] = load_yaml(DEMO.read_text(), str(DEMO))
    settings |= {"run": "step", "folder": str(folder), "budget": {"steps": steps}}
    settings["model"]["path"] = str(ensure_base_model(BaseModel(), lambda share: None))
    settings["tasks"]["evaluation"] |= {"every_steps": NEVER, "num_prompts": 16}
    settings["trainer"]["checkpoint_every_steps"] = NEVER
    return settings


def measure_run(source: Path, folder: Path, steps: int) -> Figures:
    """One run, by its steps.jsonl: means over the steps that count."""
    folder.mkdir()
    run_file = folder / "run.yaml"
    run_file.write_text(json.dumps(run_settings(folder, steps)))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", str(run_file)]
    environment = user_environment() | {"PYTHONPATH": str(source / "services")}
    file = folder / "step" / "steps.jsonl"
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, env=environment)
        used = watch_processors(process, file, (WARM_UP_STEPS, steps - 1))
    if process.returncode != 0:
        raise RuntimeError(f"rollcast up of {source}: {(folder / 'said').read_text()[-3000:]}")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    seconds = rows[-1]["at"] - rows[WARM_UP_STEPS - 1]["at"]
    tokens = sum(row["trained_tokens"] for row in rows[WARM_UP_STEPS:])
    return {
        "seconds_a_step": seconds / (len(rows) - WARM_UP_STEPS),
        "seconds_a_thousand_tokens": 1000 * seconds / tokens,
        "processor_seconds_a_step": used,
    }


def watch_processors(
    process: subprocess.Popen[bytes], steps_file: Path, moments: tuple[int, int]
) -> dict[str, float]:
    """Wait for the end of `rollcast up`; returns the processor seconds of a step, by role, between
    two moments. These are numbers of steps made: before the end, when all processes are there.
    """
    used: list[tuple[int, dict[str, float]]] = []
    deadline = time.monotonic() + RUN_SECONDS
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.terminate()
            raise RuntimeError(f"rollcast up took more than {RUN_SECONDS:.0f} seconds")
        made = steps_file.read_bytes().count(b"\n") if steps_file.exists() else 0
        if len(used) < len(moments) and made >= moments[len(used)]:
            used.append((made, processor_seconds(process.pid)))
        time.sleep(0.02)
    if len(used) < len(moments):
        return {}
    (first_step, before), (last_step, after) = used
    return {role: (after[role] - before[role]) / (last_step - first_step) for role in after}


def processor_seconds(command: int) -> dict[str, float]:
    """Processor seconds of `rollcast up` and all processes below it, by role."""
    seconds = dict.fromkeys((*ROLES.values(), "rest"), 0.0)
    parent = psutil.Process(command)
    for process in (parent, *parent.children(recursive=True)):
        try:
            times = process.cpu_times()
            role = ROLES.get(process_name(process, command), "rest")
        except psutil.Error:  # it has just ended
            continue
        seconds[role] += times.user + times.system
    return seconds


def trl_seconds_a_step(python: str, folder: Path, steps: int) -> float:
    """Run the same model, prompts and reward in TRL's GRPOTrainer."""
    folder.mkdir()
    settings = run_settings(folder, steps)
    run_file = folder / "run.yaml"
    run_file.write_text(json.dumps(settings))
    prompts = load(load_run_config(run_file).tasks).train
    rows = [{"prompt": prompt.text, "answer": json.loads(prompt.reference)} for prompt in prompts]
    (folder / "task.json").write_text(json.dumps({"settings": settings, "rows": rows}))
    command = [python, str(TRL_PROGRAM), str(folder / "task.json"), str(WARM_UP_STEPS)]
    ended = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env=user_environment(),
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"TRL: {ended.stderr[-3000:]}")
    return float(ended.stdout.splitlines()[-1])


def user_environment() -> dict[str, str]:
    """This process's variables without those that would choose a number of threads, or another
    checkout.
    """
    return {name: value for name, value in os.environ.items() if name not in SET_BY_BENCHMARKS}


if __name__ == "__main__":
    sys.exit(main())
