"""The services on one card with the weights over NCCL, and a generator that is killed in the
middle.

`rollcast up` sends weights over gloo if processes share a card. Here each service is started by
itself, as pods are, and is a host of its own for NCCL, so that the real generator, trainer and NCCL
meet on one card.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from testkit.gpu.live_run import surroundings
from testkit.gpu.run_settings import (
    START_SECONDS,
    STEPS_AFTER_AN_EVENT,
    STEPS_SECONDS,
    demo_settings,
    step_figures,
)
from testkit.system.audit import check_every_task_once
from testkit.system.harness import System, wait_for

GENERATORS = ("generator-0", "generator-1")
VICTIM = GENERATORS[1]


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """Figures and targets."""
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as folder:
        return with_a_kill(Path(folder), is_small=is_small)


def with_a_kill(folder: Path, *, is_small: bool) -> dict[str, Any]:
    """folder: of the run and its files."""
    os.environ.update(surroundings(has_card=not is_small))
    settings = demo_settings(folder, is_small=is_small)
    del settings["redis"]  # the harness starts one and names its port
    # generator.gpu_memory_utilization of each: two of them and a trainer share the card
    settings["generator"]["gpu_memory_utilization"] = 0.2
    # Given to vLLM, which would measure it while the other processes on the card allocate
    settings["generator"]["gpu_kv_cache_gib"] = 2.0
    settings["tasks"]["evaluation"]["every_steps"] = 1_000
    steps = 2 if is_small else STEPS_AFTER_AN_EVENT
    figures: dict[str, Any] = {}
    os.chdir(folder)  # the run file names its rows relative to it
    with System(folder / "system", settings) as system:
        system.start_trainer()
        for name in GENERATORS:
            system.start_generator(name)
        started = time.monotonic()
        system.wait_step(1, START_SECONDS)
        figures["seconds_to_first_step"] = round(time.monotonic() - started, 2)
        seconds_until(
            lambda: count_joined(system) == len(GENERATORS), START_SECONDS, "every generator"
        )
        system.wait_step(system.last_step + steps, STEPS_SECONDS)
        system.kill(VICTIM)
        killed_at = system.last_step
        figures["seconds_until_noticed"] = seconds_until(
            lambda: count_joined(system) == 1, STEPS_SECONDS, "the fence"
        )
        system.wait_step(killed_at + steps, STEPS_SECONDS)
        system.start_generator(VICTIM)
        figures["seconds_until_rejoined"] = seconds_until(
            lambda: count_joined(system) == len(GENERATORS), START_SECONDS, "the return"
        )
        system.wait_step(system.last_step + steps, STEPS_SECONDS)
        outcomes = check_every_task_once(system.lines("tasks.jsonl"))
        return {
            **figures,
            "tasks": outcomes,
            **step_figures(system.steps),
            "targets": {
                "trainer and the other generator lived, and the killed one came back": True
            },
        }


def count_joined(system: System) -> int:
    """Generators that the trainer's page counts; 0 without a page."""
    with suppress(httpx.HTTPError, OSError, ValueError):
        return int(
            system.metrics("trainer").get(("rollcast_generators", (("state", "joined"),)), 0.0)
        )
    return 0


def seconds_until(condition: Callable[[], bool], seconds: float, event_name: str) -> float:
    """Raises AssertionError if it does not happen in time."""
    started = time.monotonic()
    wait_for(condition, seconds, event_name)
    return round(time.monotonic() - started, 2)
