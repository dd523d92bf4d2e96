"""The settings of each kind of run: tiny models, small batches, short deadlines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from testkit.chaos import harness_program, rough_episodes
from testkit.chaos.faults import HEARTBEAT_SECONDS, RunKind
from testkit.system.recorded_system import make_settings as make_recorded_settings

LAG = 4
"""recipe.schedule.max_staleness: half of the default, so that a bound that is broken shows."""
GROUP_TASKS = 8
"""Prompts of a step where answers are single."""


def make_settings(kind: RunKind, folder: Path, mark: str) -> dict[str, Any]:
    """`mark`: digits by which leaks of the run are found."""
    match kind:
        case "class":
            settings = rough_episodes.make_settings(folder, mark)
        case "endpoint":
            settings = _with_harness(rough_episodes.make_settings(folder, mark))
        case "router replay":
            settings = make_recorded_settings("experts", folder)
            (verifier,) = settings["tasks"]["verifiers"]
            verifier["trusted"] = False
            settings["tasks"]["grading"] = {"sandbox": "remote"}
            # Programs that grade concurrently; each takes a core
            settings["grader"] = {"port": 0, "processes": 1}
        case "lora":
            settings = make_recorded_settings("lora", folder)
        case _:
            settings = make_recorded_settings("answers", folder)
    if kind == "teacher":
        teacher = {"kind": "folder", "path": settings["model"]["path"]}
        settings["recipe"]["distillation"] = {"teacher": teacher, "with_reward": True}
    transport = "store" if kind == "store" else "auto"
    # An anchor each third version, so that a generator that comes back begins with changes as well
    settings["weights"] = {"transport": transport, "store": {"anchor_every": 3}}
    settings["weights"] |= {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        # Shorter than the default by as much as the heartbeats'
        "bucket_timeout_seconds": 3.0,
    }
    settings["run"] = "chaos"
    settings["recipe"]["schedule"]["max_staleness"] = LAG
    # Never reached: a run ends when its faults are made
    settings["budget"] = {"steps": 1_000_000}
    # As often as a trainer's outage should cost little, and rare enough to cost something
    settings["trainer"]["checkpoint_every_steps"] = 5
    settings["generator"]["drain_seconds"] = 3
    settings["tasks"]["evaluation"] |= {"num_prompts": 8, "rollouts_per_prompt": 1}
    settings["tasks"]["evaluation"]["every_steps"] = 10
    settings["forecaster"] = {"http_port": 0}
    settings["autoscaler"] = {"mode": "hpa", "http_port": 0, "every_seconds": 2.0}
    return settings


def _with_harness(settings: dict[str, Any]) -> dict[str, Any]:
    (world,) = settings["tasks"]["environments"]
    settings["tasks"]["environments"] = [
        {
            "kind": "harness",
            "name": world["name"],
            "command": [sys.executable, "-I", "-S", harness_program.__file__],
            "restarts": 1,
        }
    ]
    return settings
