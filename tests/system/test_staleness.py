"""The bound on the real system, k = 2, with long-tailed lengths, while a generator or the trainer is slow.

A generator that has become 20 times slower hands its groups over; nothing is lost, dropped or too old in all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.harness import System, wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(1000)]

LAG, GROUPS_PER_STEP = 2, 8
ATTEMPTS = 2
"""A busy machine can keep a healthy generator silent beyond its deadline: a fault, and what it held is redone."""
SLOW_SECONDS = 12.0


def slow_trainer(system: System) -> None:
    system.slow_down("trainer", 0.3, SLOW_SECONDS)


def slow_generator(system: System) -> None:
    system.slow_down("g1", 0.15, SLOW_SECONDS)


def much_slower_generator(system: System) -> None:
    deadline = time.monotonic() + 60
    while not handed_over(system) and time.monotonic() < deadline:
        system.slow_down("g1", 0.05, 1.0)


SLOW: tuple[Callable[[System], None], ...] = (much_slower_generator, slow_trainer, slow_generator)
"""In this order: a generator that was never slow before holds what it must hand over."""


def test_nothing_is_too_old_and_nothing_is_dropped(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings["budget"] = {"steps": 100_000}
    settings["recipe"]["schedule"]["max_staleness"] = LAG
    # Operands of 1 to 4 digits: completions of 8 to 40 tokens. The long ones are never right, so their groups are
    # filtered: they must be counted and must not starve.
    settings["tasks"]["dataset"]["max_digits"] = 4
    settings["tasks"]["evaluation"]["every_steps"] = 50
    for attempt in range(ATTEMPTS):
        with System(tmp_path / str(attempt), settings) as system:
            system.start_trainer()
            system.start_generator("g0")
            system.start_generator("g1")
            wait_for(lambda: system.last_step >= 2, 240, "the first steps")  # used within this turn
            for slow in SLOW:
                slow(system)
                system.wait_step(system.last_step + LAG + 2, 120)
            system.wait_step(25, 120)
            handed_back = wait_for(lambda: hand_overs_of(system, "g1"), 60, "a hand-over on the slow generator's books")
            asked = handed_over(system)
            assert system.terminate("trainer") == 143, system.log("trainer")[-3000:]
        if "a generator was fenced" not in system.log("trainer"):
            break
    else:
        pytest.skip("the machine is too busy: a healthy generator missed its heartbeats in every attempt")
    assert handed_back <= len(asked), "those that ended before they were asked for were handed in as usual"
    assert max(int(age) for line in system.steps for age in line["staleness_tokens"]) <= LAG
    lines = system.lines("tasks.jsonl")
    outcomes = check_every_task_once(lines)
    assert set(outcomes) <= {"used", "filtered", "open"}, f"dropped without a fault: {outcomes}"
    assert not [line for line in lines if line["what"] == "redone"]
    assert outcomes["used"] + outcomes["filtered"] > 10 * GROUPS_PER_STEP
    check_nothing_was_left_behind(lines, LAG)  # the slow generator's groups and the long ones are among them


def handed_over(system: System) -> list[int]:
    return [task for line in system.lines("tasks.jsonl") if line["what"] == "handed_over" for task in line["tasks"]]


def hand_overs_of(system: System, generator: str) -> float:
    return system.metrics(generator).get(("rollcast_hand_overs_total", ()), 0.0)
