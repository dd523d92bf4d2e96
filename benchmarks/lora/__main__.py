"""LoRA against full fine-tuning on the demo's task: pass rate, bytes of a version, seconds a step.

    python -m benchmarks.lora [--seeds 0 1 2 3 4] [--steps 48] [--rank 8] [--more]

Each seed runs `rollcast up` twice, first with every weight, then with adapters of all linear
layers. The learning rate of the adapters is ten times the other one, as "LoRA without regret"
advises. A tenth of the steps is warm-up in both. Seconds a step is the median from a quarter of the
run on, evaluations left out. On a CPU vLLM computes adapters without a kernel of their own, so the
seconds say nothing of a GPU. Writes results/lora.json after each seed; exit status 1 if a run
fails. --more keeps the other seeds of that file.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import yaml
from safetensors import safe_open

from benchmarks.short_demo import LEARNING_RATE, short_demo
from rollcast.runfolder.files import EVALUATIONS, EXPORT, STEPS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord
from testkit.record import RESULTS, write_result

LORA_RATE_FACTOR = 10
ALPHA = 32
EVALUATE_EVERY = 10
RUN_SECONDS = 1_500.0
"""Deadline of one run."""
FLOAT32_BYTES = 4
KINDS = ("full", "lora")


def settings(kind: str, seed: int, steps: int, rank: int) -> dict[str, Any]:
    """A run file."""
    rate = LEARNING_RATE * (LORA_RATE_FACTOR if kind == "lora" else 1)
    given = short_demo(kind, steps, learning_rate=rate)
    given["seed"] = seed
    given["recipe"]["optimizer"]["warmup_steps"] = max(1, steps // 10)
    given["tasks"]["evaluation"]["every_steps"] = EVALUATE_EVERY
    if kind == "lora":
        given["model"]["lora"] = {"rank": rank, "alpha": ALPHA}
    return given


def run(kind: str, seed: int, steps: int, rank: int, folder: Path) -> dict[str, Any]:
    """One run and its results. Raises RuntimeError if it fails."""
    folder.mkdir(parents=True)
    given = settings(kind, seed, steps, rank) | {"folder": str(folder)}
    file = folder / "run.yaml"
    file.write_text(yaml.safe_dump(given))
    command = [sys.executable, "-m", "rollcast.cli.main", "up", "--config", str(file)]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False
    )
    if ended.returncode != 0:
        raise RuntimeError(
            f"{kind}, seed {seed}: exit status {ended.returncode}: {ended.stdout}{ended.stderr}"
        )
    made = folder / kind
    points = list(RecordFile(made / EVALUATIONS, EvaluationRecord).read())
    trained = list(RecordFile(made / STEPS, StepRecord).read())
    updates = [one.update_seconds for one in trained if one.update_seconds is not None]
    return {
        "first": points[0].pass_rate,
        "last": points[-1].pass_rate,
        "mean": fmean(point.pass_rate for point in points[1:]),
        "curve": [[point.step, round(point.pass_rate, 4)] for point in points],
        "bytes_of_a_version": published_bytes(made / EXPORT),
        "seconds_a_step": seconds_a_step(trained),
        "update_seconds": median(updates),
        "logprob_gap_max": max(one.logprob_gap_max or 0.0 for one in trained),
    }


def seconds_a_step(trained: list[StepRecord]) -> float:
    """Median time between two steps without an evaluation between them."""
    late = trained[len(trained) // 4 :]
    pairs = [
        (a, b) for a, b in pairwise(late) if a.step % EVALUATE_EVERY and b.step % EVALUATE_EVERY
    ]
    return median(b.at - a.at for a, b in pairs if a.at is not None and b.at is not None)


def published_bytes(export: Path) -> int:
    """The export holds the tensors of the last version, in the dtype in which they travel."""
    num_bytes = 0
    for path in export.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  (no mapping)
                num_bytes += FLOAT32_BYTES * math.prod(file.get_slice(name).get_shape())
    return num_bytes


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds; the spread of the last pass rate is the sample's standard deviation."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        runs = [row[kind] for row in rows]
        last = [one["last"] for one in runs]
        found[kind] = {
            "last_pass_rate": fmean(last),
            "last_pass_rate_deviation": stdev(last) if len(last) > 1 else None,
            "mean_pass_rate": fmean(one["mean"] for one in runs),
            "bytes_of_a_version": runs[0]["bytes_of_a_version"],
            "seconds_a_step": median(one["seconds_a_step"] for one in runs),
            "update_seconds": median(one["update_seconds"] for one in runs),
        }
    return found


def earlier(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The seeds of the result, if it was made with the same settings."""
    path = RESULTS / "lora.json"
    if not path.exists():
        return []
    figures = json.loads(path.read_text())["figures"]
    rows: list[dict[str, Any]] = figures["seeds"]
    return rows if all(figures[name] == value for name, value in given.items()) else []


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--more", action="store_true", help="keep the other seeds of the result")
    arguments = parser.parse_args()
    given = {"steps": arguments.steps, "rank": arguments.rank, "alpha": ALPHA}
    rows = (
        [row for row in earlier(given) if row["seed"] not in arguments.seeds]
        if arguments.more
        else []
    )
    with tempfile.TemporaryDirectory(prefix="rollcast-lora-") as temporary:
        for seed in arguments.seeds:
            row: dict[str, Any] = {"seed": seed}
            for kind in KINDS:
                folder = Path(temporary) / f"{seed}-{kind}"
                try:
                    row[kind] = run(kind, seed, arguments.steps, arguments.rank, folder)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(error, file=sys.stderr)
                    return 1
                print(kind, json.dumps(row[kind]), flush=True)
            rows.append(row)
            write_result("lora", {**given, "summary": summary(rows), "seeds": rows})
    print(json.dumps(summary(rows), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
