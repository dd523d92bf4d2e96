"""Seconds a step of `rollcast up`, paired with an earlier commit, with TRL, or with both.

    python -m benchmarks.step --against COMMIT [--pairs 5] [--steps 60]
    python -m benchmarks.step --trl ENVIRONMENT/bin/python  # an environment with trl==1.16.0

The demo's model and task, 16 x 8 completions, no evaluation but before the first and after the last
step, and no checkpoint. In every pair this checkout runs first, then the others, so that all of
them see the same machine. A run is what a user starts: `rollcast up`, without OMP_NUM_THREADS or
any other variable that only a benchmark would set. An earlier commit runs with the packages of this
environment. The first 10 steps fill the pipeline and do not count. The median of the ratios over
the pairs counts. Writes results/step.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.short_demo import DEMO
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
Measure = Callable[[Path], float]


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
            "rollcast": lambda folder: seconds_a_step(ROOT, folder, arguments.steps)
        }
        if earlier is not None:
            measures["commit"] = lambda folder: seconds_a_step(earlier, folder, arguments.steps)
        if arguments.trl:
            measures["trl"] = lambda folder: trl_seconds_a_step(
                arguments.trl, folder, arguments.steps
            )
        pairs = []
        for number in range(arguments.pairs):
            pairs.append(
                {name: run(Path(temporary) / f"{number}-{name}") for name, run in measures.items()}
            )
            print(json.dumps(pairs[-1]), flush=True)
    return report(arguments, pairs)


def report(arguments: argparse.Namespace, pairs: list[dict[str, float]]) -> int:
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
        "median_ratio": {other: median(found) for other, found in ratios.items()},
        "targets": targets,
    }
    print(
        json.dumps(
            {name: figures[name] for name in ("median_seconds_a_step", "median_ratio")}, indent=1
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


def seconds_a_step(source: Path, folder: Path, steps: int) -> float:
    """Mean wall time of a step of one run, by the times of its steps.jsonl."""
    folder.mkdir()
    run_file = folder / "run.yaml"
    run_file.write_text(json.dumps(run_settings(folder, steps)))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", str(run_file)]
    environment = user_environment() | {"PYTHONPATH": str(source / "services")}
    with (folder / "said").open("wb") as said:
        ended = subprocess.run(
            command,
            cwd=folder,
            stdout=said,
            stderr=said,
            timeout=RUN_SECONDS,
            env=environment,
            check=False,
        )
    if ended.returncode != 0:
        raise RuntimeError(f"rollcast up of {source}: {(folder / 'said').read_text()[-3000:]}")
    times = [
        json.loads(line)["at"]
        for line in (folder / "step" / "steps.jsonl").read_text().splitlines()
    ]
    return float((times[-1] - times[WARM_UP_STEPS - 1]) / (len(times) - WARM_UP_STEPS))


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
