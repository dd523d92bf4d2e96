"""What streaming buys: wall time of a step against generation alone and training alone, and against
the k = 0 schedule.

    python -m benchmarks.pipeline [--pairs 5] [--steps 40]

The demo's model and task; evaluation only before the first and after the last step. The whole
generator, its front end with it, runs on core 0, trainer and Redis on core 1, alone and together:
neither part may borrow the other's core. Each pair runs, one after the other, on the same machine
state:

    generation alone   the generator service answers the run's first tasks, without training
    bare vLLM          the same engine without the service answers the same prompts
    training alone     the learner trains on those very groups and gathers its weights, without
                       generation
    pipeline           the real run, k = 8, from step 10 on

Generation during training is what the service samples while it has work, its pauses for new weights
included. The synchronous schedule (k = 0) is run with each pair. Ratios are of mean step times, and
their medians over the pairs count. Writes results/pipeline.json; exit status 1 if a target is
missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from rollcast.config.run import load_run_config
from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from rollcast.rollouts.codec import encode_group
from rollcast.rollouts.records import Purpose, RolloutGroup
from testkit.generator.trainer_end import copy_weights
from testkit.record import write_result
from testkit.system.harness import System

GENERATOR_CORE, TRAINER_CORE = 0, 1
WARM_UP_STEPS = 10
ALONE_BATCHES = 12
WINDOW_BATCHES = 3
START_SECONDS, RUN_SECONDS = 180.0, 600.0


def make_settings(steps: int, lag: int) -> dict[str, Any]:
    """The demo's settings on pinned cores."""
    settings: dict[str, Any] = yaml.safe_load(Path("configs/demo.yaml").read_text())
    settings["run"] = f"pipeline-{lag}"
    settings["model"]["path"] = str(ensure_base_model(BaseModel(), lambda share: None))
    settings["tasks"]["evaluation"] |= {
        "every_steps": 1_000_000,
        "num_prompts": 16,
        "rollouts_per_prompt": 4,
    }
    settings["recipe"]["schedule"] = {"kind": "pipeline", "max_staleness": lag}
    settings["budget"] = {"steps": steps}
    settings["generator"]["cpu"] = GENERATOR_CORE
    settings["trainer"] |= {"cpu": TRAINER_CORE, "checkpoint_every_steps": 1_000_000}
    del settings["rpc"], settings["redis"], settings["forecaster"]
    return settings


def pipeline(folder: Path, steps: int, lag: int) -> dict[str, float]:
    """One whole run, from step 10 on."""
    with System(folder, make_settings(steps, lag)) as system:
        system.start_trainer()
        system.start_generator("g0")
        pin(system)
        system.wait_step(WARM_UP_STEPS, START_SECONDS)
        before = generator_figures(system)
        if system.wait_end(RUN_SECONDS) != 0:
            raise RuntimeError(system.log("trainer")[-3000:])
        after = generator_figures(system)
    lines = system.steps
    walls = [
        b["at"] - a["at"]
        for a, b in zip(lines[WARM_UP_STEPS:], lines[WARM_UP_STEPS + 1 :], strict=False)
    ]
    groups = 16 * 8
    tokens = [line["completion_tokens_mean"] * groups for line in lines[WARM_UP_STEPS + 1 :]]
    ages = [
        (int(age), count)
        for line in lines[WARM_UP_STEPS:]
        for age, count in line["staleness_tokens"].items()
    ]
    seconds = after["at"] - before["at"]
    return {
        "step_seconds": median(walls),
        "mean_step_seconds": sum(walls) / len(walls),
        "update_seconds": median(line["update_seconds"] for line in lines[WARM_UP_STEPS:]),
        "trained_completion_tokens_per_second": sum(tokens) / sum(walls),
        "generator_idle_share": (after["idle"] - before["idle"]) / seconds,
        "pause_seconds_mean": (after["pause_sum"] - before["pause_sum"])
        / max(1.0, after["pauses"] - before["pauses"]),
        "mean_staleness": sum(age * count for age, count in ages) / sum(count for _, count in ages),
        "max_staleness": max(age for age, _ in ages),
    }


def pin(system: System) -> None:
    """Right after the start: what a process starts later inherits its core."""
    for name, process in system.processes.items():
        psutil.Process(process.pid).cpu_affinity([GENERATOR_CORE if name == "g0" else TRAINER_CORE])


def generator_figures(system: System) -> dict[str, float]:
    metrics = system.metrics("g0")
    return {
        "at": time.time(),
        "idle": metrics.get(("rollcast_generator_idle_seconds_total", ()), 0.0),
        "pause_sum": metrics.get(("rollcast_weight_pause_seconds_sum", ()), 0.0),
        "pauses": metrics.get(("rollcast_weight_pause_seconds_count", ()), 0.0),
    }


def generation_alone(folder: Path) -> tuple[dict[str, float], list[RolloutGroup]]:
    """The generator on the run's first tasks, weights published once;
    returns the groups it made.
    """
    import torch
    from transformers import AutoModelForCausalLM

    from rollcast.tasks.prompts import load
    from rollcast.tasks.tokens import load_tokenizer
    from rollcast.trainer.control.prompt_book import PromptBook, TaskMaker
    from testkit.generator.trainer_end import TrainerEnd

    with System(folder, make_settings(1, 8)) as system:
        config = load_run_config(system.config)
        tokenizer = load_tokenizer(config.model)
        book = PromptBook(load(config.tasks).train, tokenizer, max_prompt_tokens=16)
        maker = TaskMaker(
            config.recipe,
            lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            incarnation=1,
            seed=config.seed,
        )
        end = TrainerEnd(
            config, AutoModelForCausalLM.from_pretrained(config.model.path, dtype=torch.float32)
        )
        end.queue.start_incarnation(1)
        publish_unchanged(end)
        system.start_generator("g0")
        pin(system)
        batch = config.recipe.prompts_per_step
        num_rollouts = config.recipe.rollouts_per_prompt
        tasks = [
            maker.make(number, item, num_rollouts, Purpose.TRAIN)
            for number, item in enumerate(book.values())
        ]
        end.queue.dispatch(tasks[: WINDOW_BATCHES * batch])
        sent, started, groups = WINDOW_BATCHES * batch, 0.0, list[RolloutGroup]()
        deadline = time.monotonic() + START_SECONDS
        while len(groups) < (ALONE_BATCHES + 1) * batch:
            if time.monotonic() > deadline:
                raise RuntimeError(system.log("g0")[-3000:])
            deliveries = end.queue.read(batch, 0.2)
            end.queue.remove([delivery.stream_id for delivery in deliveries])
            end.queue.dispatch(tasks[sent : sent + len(deliveries)])
            sent += len(deliveries)
            groups += [delivery.group for delivery in deliveries]
            if not started and len(groups) >= batch:
                started, first = time.monotonic(), len(groups)
        seconds = time.monotonic() - started
        counted = groups[first:]
        end.close()
    tokens = sum(group.num_tokens for group in counted)
    per_batch = seconds / len(counted) * batch
    return {"tokens_per_second": tokens / seconds, "batch_seconds": per_batch}, groups[
        : ALONE_BATCHES * batch
    ]


def publish_unchanged(end: Any) -> None:
    """The model's own weights as version 1.0."""
    from rollcast.wire.version import PolicyVersion

    slot, version = end.publisher.stage(), PolicyVersion(1, 0)
    end.slots.fill(slot, version, 5.0, partial(copy_weights, end.base))
    end.publisher.publish(slot, version)


def record(folder: Path, groups: list[RolloutGroup]) -> None:
    """What `alone` reads."""
    folder.mkdir(parents=True)
    for number, group in enumerate(groups):
        (folder / f"{number:05}.group").write_bytes(encode_group(group))
    (folder / "run.yaml").write_text(yaml.safe_dump(make_settings(1, 8) | {"folder": str(folder)}))


def alone(part: str, folder: Path) -> dict[str, float]:
    """One part on recorded groups, in a process of its own: `bare` or `train_alone`."""
    command = [sys.executable, "-m", f"benchmarks.pipeline.{part}", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{part}: {ended.stderr[-3000:]}")
    figures: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return figures


def measure_pair(folder: Path, steps: int) -> dict[str, Any]:
    generation, groups = generation_alone(folder / "generation")
    record(folder / "recorded", groups)
    bare = alone("bare", folder / "recorded")
    training = alone("train_alone", folder / "recorded")
    streamed = pipeline(folder / "pipeline", steps, lag=8)
    synchronous = pipeline(folder / "synchronous", steps, lag=0)
    slower = max(generation["batch_seconds"], training["batch_seconds"])
    busy = streamed["trained_completion_tokens_per_second"] / max(
        1e-9, 1 - streamed["generator_idle_share"]
    )
    return {
        "generation_alone": generation,
        "bare_vllm": bare,
        "training_alone": training,
        "pipeline": streamed,
        "synchronous_k_0": synchronous,
        "step_over_slower_part": streamed["mean_step_seconds"] / slower,
        "generation_over_bare_vllm": busy / bare["tokens_per_second"],
        "service_alone_over_bare_vllm": generation["tokens_per_second"] / bare["tokens_per_second"],
        "synchronous_step_over_pipeline_step": synchronous["mean_step_seconds"]
        / streamed["mean_step_seconds"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rollcast-pipeline-") as temporary:
        pairs = []
        for number in range(arguments.pairs):
            pairs.append(measure_pair(Path(temporary) / str(number), arguments.steps))
            print(json.dumps(pairs[-1]), flush=True)
    figures: dict[str, Any] = {"pairs": pairs} | {
        f"median_{name}": median(pair[name] for pair in pairs)
        for name in pairs[0]
        if "_over_" in name
    }
    targets = {
        "a step at most 1.15 times the slower part": figures["median_step_over_slower_part"]
        <= 1.15,
        "generation during training at least 0.85 of bare vLLM": figures[
            "median_generation_over_bare_vllm"
        ]
        >= 0.85,
    }
    print(json.dumps({name: value for name, value in figures.items() if name != "pairs"}, indent=1))
    for target, met in targets.items():
        print(f"{'met   ' if met else 'MISSED'}  {target}")
    print(write_result("pipeline", figures | {"targets": targets}))
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
