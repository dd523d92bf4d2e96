"""Whole steps of a run whose generator and trainer share the card: tokens a second and GPU, and the
shares of the time, next to the prediction for this run file.

8 prompts with 16 rollouts a step. A model with random weights ends an answer at any token with the
same chance, so the lengths are geometric: about 3,000 tokens on average, 8,192 at most.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from testkit.gpu.live_run import COMMAND, LiveRun, surroundings
from testkit.gpu.parts import report
from testkit.gpu.run_settings import RUN, START_SECONDS, random_settings, step_figures

MEAN_TOKENS, LONGEST = 3_000, 8_192
WAITS = ("batch", "straggler", "weights", "redis")
"""What a trainer waits for, as its metric names it."""
STEP_SECONDS = 90.0
"""Longest time for one step on an H100."""


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """`name`: step-SHAPE. Figures and targets."""
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as folder:
        return whole_steps(Path(folder), name.removeprefix("step-"), is_small=is_small)


def make_settings(folder: Path, shape: str, *, is_small: bool) -> dict[str, Any]:
    settings = random_settings(
        folder, is_small=is_small, shape=shape, longest=LONGEST, end_stride=MEAN_TOKENS
    )
    settings["recipe"] |= {"prompts_per_step": 8, "rollouts_per_prompt": 16}
    settings["tasks"]["evaluation"]["every_steps"] = 1_000
    if not is_small:
        # Recomputed, so that the generator has room on the card
        settings["trainer"] |= {"tokens_per_micro_batch": 16_384, "activation_checkpointing": True}
        settings["generator"] |= {"gpu_memory_utilization": 0.35}
    return settings


def whole_steps(folder: Path, shape: str, *, is_small: bool, **options: Any) -> dict[str, Any]:
    """options: of LiveRun."""
    settings = make_settings(folder, shape, is_small=is_small)
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    figures: dict[str, Any] = {"predicted": predict(folder, is_small=is_small)}
    # Steps that fill the pipeline, and steps that count
    filling, counted = (1, 2) if is_small else (2, 5)
    command = ["up", "--config", "run.yaml"]
    with LiveRun(folder, RUN, command, has_card=not is_small, **options) as run:
        # Nearly every batch has an answer of LONGEST tokens, which is sampled after the start.
        figures["seconds_to_first_step"] = run.wait_step(1, START_SECONDS + STEP_SECONDS)
        report(figures)
        run.wait_step(filling, filling * STEP_SECONDS)
        before, began = totals(run), time.monotonic()
        for step in range(filling + 1, filling + counted + 1):
            run.wait_step(step, STEP_SECONDS)
            seconds = time.monotonic() - began
            steps = [line for line in run.steps if filling < line["step"] <= step]
            spent = {name: value - before[name] for name, value in totals(run).items()}
            figures |= {"whole": whole_step(steps, spent, seconds)}
            report(figures)
        return figures | {
            "steps": step_figures(run.steps),
            "targets": {"steps are made": len(steps) >= counted},
        }


def predict(folder: Path, *, is_small: bool) -> dict[str, Any] | str | None:
    """What `rollcast config check` expects of the run, or its sentence; None without a card."""
    mean = [] if is_small else ["--mean-tokens", str(MEAN_TOKENS)]
    done = subprocess.run(
        [*COMMAND, "config", "check", "run.yaml", "--json", *mean],
        cwd=folder,
        env=surroundings(has_card=not is_small),
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )
    if done.returncode:
        return done.stderr.strip()
    predicted: dict[str, Any] | None = json.loads(done.stdout)["predicted"]
    return predicted


def totals(run: LiveRun) -> dict[str, float]:
    """Seconds so far that trainer and generator count."""
    trainer, generator = run.metrics("trainer"), run.metrics("generator-0")
    waits = {
        f"trainer waits for {reason}": trainer.get(
            ("rollcast_trainer_wait_seconds_total", reason), 0.0
        )
        for reason in WAITS
    }
    return waits | {
        "generator is idle": generator.get(("rollcast_generator_idle_seconds_total", ""), 0.0),
        "generator pauses for weights": generator.get(
            ("rollcast_weight_pause_seconds_sum", ""), 0.0
        ),
    }


def whole_step(
    steps: list[dict[str, Any]], spent: dict[str, float], seconds: float
) -> dict[str, Any]:
    """Figures of steps that took `seconds` together; `spent`: seconds by their purpose."""
    updates = sum(step["update_seconds"] for step in steps)
    return {
        "steps": len(steps),
        "step_seconds": round(seconds / len(steps), 3),
        "tokens_per_second_and_gpu": round(
            sum(step["trained_tokens"] for step in steps) / seconds, 1
        ),
        "completion_tokens_mean": round(
            sum(step["completion_tokens_mean"] for step in steps) / len(steps), 1
        ),
        "shares": {
            name: round(value / seconds, 4)
            for name, value in {"trainer updates": updates, **spent}.items()
        },
    }
