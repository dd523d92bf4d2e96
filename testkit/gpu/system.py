"""The whole system on one card: generators and trainer as `rollcast up` starts them.

system: the demo's additions with its own model. A generator is killed in the middle, the trainer
must go on and the generator must come back; then the run is ended by Ctrl-C and resumed, and the
account of all tasks is checked. system-0.6b: random weights at the shape of Qwen3-0.6B, on a task
that such a model can learn (`first_token`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml

from testkit.gpu.live_run import LiveRun
from testkit.gpu.one_card.sitecustomize import stagers_are_used_up
from testkit.gpu.parts import report
from testkit.gpu.run_settings import (
    RUN,
    START_SECONDS,
    STEPS_AFTER_AN_EVENT,
    STEPS_SECONDS,
    demo_settings,
    random_settings,
    step_figures,
)
from testkit.system.audit import check_every_task_once, read_lines

VICTIM = "generator-1"
STEPS_06B = 30


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """Figures and targets of one scenario."""
    scenario = with_kill_and_resume if name == "system" else with_random_weights
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as folder:
        return {"new_stager_for_each_save": stagers_are_used_up(torch.__version__)} | scenario(
            Path(folder), is_small=is_small
        )


def with_kill_and_resume(folder: Path, *, is_small: bool, **options: Any) -> dict[str, Any]:
    """options: of LiveRun."""
    # Step after which the trainer is killed
    kill_step, steps_after = (2, 2) if is_small else (20, STEPS_AFTER_AN_EVENT)
    settings = demo_settings(folder, is_small=is_small)
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    up = ["up", "--config", "run.yaml"]
    figures: dict[str, Any] = {}
    with LiveRun(folder, RUN, up, has_card=not is_small, **options) as run:
        figures["seconds_to_first_step"] = run.wait_step(1, START_SECONDS)
        alone = settings["local"]["generators"] - 1
        run.wait_for(lambda: run.count_joined() > alone, START_SECONDS, "every generator")
        run.wait_step(kill_step, STEPS_SECONDS)
        run.kill_generator(VICTIM)
        figures["seconds_until_noticed"] = run.wait_for(
            lambda: run.count_joined() == alone, STEPS_SECONDS, "the fence"
        )
        noticed_at = run.last_step
        figures["seconds_until_rejoined"] = run.wait_for(
            lambda: run.count_joined() > alone, START_SECONDS, "the return"
        )
        rejoined_at = run.last_step
        figures["steps_meanwhile"] = rejoined_at - noticed_at
        run.wait_step(rejoined_at + steps_after, STEPS_SECONDS)
        report(figures | step_figures(run.steps))
        figures["exit_code_after_ctrl_c"] = run.interrupt()
        stopped_at = run.last_step
    with LiveRun(folder, RUN, [*up, "--resume"], has_card=not is_small, **options) as run:
        figures["seconds_to_resume"] = run.wait_step(stopped_at + 1, START_SECONDS)
        run.wait_step(stopped_at + steps_after, STEPS_SECONDS)
        run.interrupt()
        return figures | step_figures(run.steps) | account(run.folder, figures, stopped_at)


def with_random_weights(folder: Path, *, is_small: bool, **options: Any) -> dict[str, Any]:
    """options: of LiveRun."""
    settings = random_settings(folder, is_small=is_small)
    (folder / "run.yaml").write_text(yaml.safe_dump(settings))
    num_steps = 3 if is_small else STEPS_06B
    with LiveRun(
        folder, RUN, ["up", "--config", "run.yaml"], has_card=not is_small, **options
    ) as run:
        first = run.wait_step(1, START_SECONDS)
        report({"seconds_to_first_step": first})
        run.wait_step(num_steps, STEPS_SECONDS)
        figures = step_figures(run.steps)
    return {
        "seconds_to_first_step": first,
        **figures,
        "targets": {"steps are made": figures["steps"] >= num_steps},
    }


def account(run_folder: Path, figures: dict[str, Any], stopped_at: int) -> dict[str, Any]:
    """Outcomes of all tasks in the surviving history, evaluations, and the targets
    of the scenario.
    """
    try:
        outcomes: dict[str, int] | str = check_every_task_once(
            read_lines(run_folder / "tasks.jsonl")
        )
    except AssertionError as error:
        outcomes = str(error)
    resumed = [line["started_from"] for line in read_lines(run_folder / "incarnations.jsonl")][1:]
    return {
        "tasks": outcomes,
        "stopped_at_step": stopped_at,
        "resumed_from_step": resumed[-1] if resumed else None,
        "pass_rates": [
            [line["step"], round(line["pass_rate"], 4)]
            for line in read_lines(run_folder / "evaluations.jsonl")
        ],
        "targets": {
            "the trainer made steps while a generator was away": figures["steps_meanwhile"] > 1,
            "every task is settled once at most": isinstance(outcomes, dict),
            "the run was resumed where it stopped": bool(resumed) and resumed[-1] == stopped_at,
        },
    }
