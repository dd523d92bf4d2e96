"""The flight recorder in real runs: are steps found again and faults attributed, what does it cost?

    python -m benchmarks.record [--steps 8] [--cost-steps 30] [--cost-alone]

Redis, a vLLM generator and a trainer in float32 with one thread; every step is recorded with all
weights, and replayed in this process. Runs of single answers, of episodes, with adapters, with
experts whose routing is replayed, and of two ranks. Then five faults are planted into records of
the first run. A damaged weight is one that the generator had: the kept version and its checksum are
changed instead. The cost is that of the demo's task with 16 x 8 completions a step, without weights
and with all versions: seconds that steps waited for the recorder by the trainer's own metric, over
the time of all steps. Writes results/record.json; exit status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from safetensors.numpy import load_file, save_file

from benchmarks.short_demo import short_demo
from rollcast.recorded.recorded_index import RecordedIndex, find_step
from rollcast.recorded.step_bundle import WEIGHTS, StepBundle, load_step
from rollcast.rollouts.records import VersionSpan
from rollcast.runfolder.files import RECORDED
from rollcast.telemetry import trainer_metrics
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.trainer.learner.whole_weights import array_digest
from rollcast.trainer.replay.program import replay
from testkit.record import RESULTS, write_result
from testkit.system.harness import System, wait_for
from testkit.system.recorded_system import KINDS, record_run

MAX_DIFFERENCE = {1: 1e-6, 2: 1e-5}
"""Ranks -> relative difference of loss and gradient norm."""
MAX_GAP_NATS = 1e-4
MAX_WAITED_SHARE = 0.01
WARM_UP_STEPS = 5
Plant = Callable[[StepBundle], None]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=8, help="of each run that is replayed")
    parser.add_argument("--cost-steps", type=int, default=30, help="of each run for the cost")
    parser.add_argument(
        "--cost-alone", action="store_true", help="measure the cost again, keep the other figures"
    )
    arguments = parser.parse_args()
    ranks = join_ranks(timeout_seconds=60, threads=1)
    figures: dict[str, Any] = {"steps": arguments.steps, "cost_steps": arguments.cost_steps}
    with tempfile.TemporaryDirectory(prefix="rollcast-record-") as temporary:
        folder = Path(temporary)
        if arguments.cost_alone:
            figures |= json.loads((RESULTS / "record.json").read_text())["figures"]
        else:
            figures |= replayed_runs(folder, arguments.steps, ranks)
        figures["cost"] = {}
        for weights in ("off", "none", "versions"):
            figures["cost"][weights] = cost(
                folder / f"cost-{weights}", arguments.cost_steps, weights
            )
            print(weights, json.dumps(figures["cost"][weights]), flush=True)
    ranks.leave()
    figures["targets"] = targets(figures)
    for target, met in figures["targets"].items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("record", figures))
    return 0 if all(figures["targets"].values()) else 1


def replayed_runs(folder: Path, steps: int, ranks: Ranks) -> dict[str, Any]:
    """Runs of every kind, and the faults."""
    found = {}
    for name, kind, num_ranks in [*((kind, kind, 1) for kind in KINDS), ("ranks", "answers", 2)]:
        system = record_run(kind, folder / name, steps=steps, ranks=num_ranks)
        found[name] = found_again(system.run_folder, steps, ranks) | {"ranks": num_ranks}
        print(name, json.dumps(found[name]), flush=True)
    run_folder = folder / "answers" / "answers"
    faults = {
        name: attributed(run_folder, str(steps), plant, ranks)
        for name, (plant, _) in FAULTS.items()
    }
    print(json.dumps(faults, indent=1), flush=True)
    return {"found_again": found, "faults": faults}


def found_again(run_folder: Path, steps: int, ranks: Ranks) -> dict[str, Any]:
    """The largest differences over all steps of a run."""
    row: dict[str, Any] = {"disagreeing": [], "trainer_tokens": 0, "generator_tokens": 0}
    differences: dict[str, list[float]] = {"loss": [], "gradient norm": []}
    gaps: dict[str, list[float]] = {"trainer": [], "generator": []}
    for number in range(1, steps + 1):
        report = replay(load_step(find_step(run_folder, str(number))), ranks)
        row["disagreeing"] += report.disagreeing
        for name, values in differences.items():
            pair = report.figures[name]
            recorded, replayed = pair["recorded"], pair["replayed"]
            assert recorded is not None
            assert replayed is not None
            values.append(abs(recorded - replayed) / max(abs(recorded), 1e-12))
        for item in report.comparisons:
            if "log-probs" in item.check and item.largest is not None:
                gaps[item.component].append(item.largest)
                row[f"{item.component}_tokens"] += item.num_compared
    for name, values in differences.items():
        row[f"{name} difference"] = max(values)
    for component, largest in gaps.items():
        row[f"{component} log-prob gap"] = max(largest)
    return row


def attributed(run_folder: Path, step: str, plant: Plant, ranks: Ranks) -> dict[str, Any]:
    """What a replay says of a step with a fault; the kept weights are as before afterwards."""
    folder = run_folder / RECORDED / WEIGHTS
    before = {file: file.read_bytes() for file in folder.glob("*.safetensors")}
    bundle = load_step(find_step(run_folder, step))
    plant(bundle)
    report = replay(bundle, ranks)
    for file, content in before.items():
        file.write_bytes(content)
    found = next((item for item in report.comparisons if item.state == "disagrees"), None)
    return {
        "disagreeing": list(report.disagreeing),
        "check": "" if found is None else found.check,
        "reason": "" if found is None else found.reason,
        "place": "" if found is None or found.location is None else str(found.location),
    }


def change_reward(bundle: StepBundle) -> None:
    trained = bundle.sequences[0]
    rollout = bundle.groups[trained.group].rollouts[trained.rollout]
    rollout.reward = 1.0 - rollout.reward


def shift_mask(bundle: StepBundle) -> None:
    mask = bundle.sequences[0].loss_mask
    mask[0] = not mask[0]


def change_label(bundle: StepBundle) -> None:
    """The end of a rollout is said to be of another version."""
    rollout = next(
        rollout
        for group in bundle.groups
        for rollout in group.rollouts
        if rollout.version_spans[-1].end - rollout.version_spans[-1].start > 4
    )
    *others, last = rollout.version_spans
    version = next(
        version
        for version in reversed(bundle.kept_versions)
        if version != last.version and version.step <= bundle.version.step
    )
    rollout.version_spans = (*others, VersionSpan(version, last.start, last.end))


def change_temperature(bundle: StepBundle) -> None:
    """The log-probs are those of 1, and the record says 0.8."""
    for group in bundle.groups:
        object.__setattr__(group.sampling, "temperature", 0.8)


def damage_weight(bundle: StepBundle) -> None:
    file = bundle.weights_file(bundle.versions[0])
    weights = load_file(file)
    name = next(name for name in weights if "q_proj" in name)
    weights[name].reshape(-1)[7] += 3.0
    save_file(weights, file, {key: array_digest(array) for key, array in weights.items()})


FAULTS: dict[str, tuple[Plant, str]] = {
    "wrong reward": (change_reward, "grader"),
    "shifted mask": (shift_mask, "trainer"),
    "stale version label": (change_label, "generator"),
    "wrong temperature": (change_temperature, "generator"),
    "damaged weight": (damage_weight, "generator"),
}


def cost(folder: Path, steps: int, weights: str) -> dict[str, Any]:
    """Waits and bytes of the demo's task. `weights`: off = nothing is recorded."""
    settings = short_demo("cost", steps)
    settings["tasks"]["evaluation"] |= {"every_steps": 100_000, "num_prompts": 16}
    settings["trainer"] |= {"checkpoint_every_steps": 100_000, "threads": 1}
    if weights != "off":
        settings["record"] = {"every_steps": 1, "weights": weights}
    waited = 0.0
    for name in ("local", "forecaster", "redis", "rpc"):
        settings.pop(name, None)
    with System(folder, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        wait_for(lambda: system.last_step >= steps, 600, "the last step")
        if weights != "off":
            waited = system.metrics("trainer")[trainer_metrics.RECORDER_WAIT.name, ()]
        assert system.wait_end(120) == 0, system.log("trainer")[-3000:]
    at = [line["at"] for line in system.steps]
    row: dict[str, Any] = {
        "seconds_a_step": (at[-1] - at[WARM_UP_STEPS]) / (len(at) - 1 - WARM_UP_STEPS),
        "update_seconds": median(line["update_seconds"] for line in system.steps),
    }
    if weights != "off":
        row["waited_seconds_a_step"] = waited / steps
        row["waited_share"] = row["waited_seconds_a_step"] / row["seconds_a_step"]
        row["bytes_a_step"] = median(
            entry.num_bytes for entry in RecordedIndex.read(system.run_folder).steps
        )
        sizes = [file.stat().st_size for file in system.run_folder.rglob(f"{WEIGHTS}/*")]
        row["bytes_a_version"] = max(sizes, default=0)
    return row


def targets(figures: dict[str, Any]) -> dict[str, bool]:
    met = {}
    for name, row in figures["found_again"].items():
        limit = MAX_DIFFERENCE[row["ranks"]]
        met[f"{name}: loss and gradient norm to {limit:g}"] = (
            max(row["loss difference"], row["gradient norm difference"]) <= limit
        )
        gap = max(row["trainer log-prob gap"], row["generator log-prob gap"])
        met[f"{name}: log-probs to {MAX_GAP_NATS:g}"] = gap <= MAX_GAP_NATS
        met[f"{name}: nothing disagrees"] = not row["disagreeing"]
    for name, (_, component) in FAULTS.items():
        met[f"{name}: {component}"] = figures["faults"][name]["disagreeing"] == [component]
    for weights in ("none", "versions"):
        share = figures["cost"][weights]["waited_share"]
        met[f"weights {weights}: steps wait at most 1 %"] = share <= MAX_WAITED_SHARE
    return met


if __name__ == "__main__":
    sys.exit(main())
