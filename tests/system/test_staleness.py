"""The bound on the real system, with long-tailed lengths, while first the trainer and then a generator is slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.harness import System, wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(1000)]

LAG, GROUPS_PER_STEP = 4, 8
ATTEMPTS = 2
"""A busy machine can keep a healthy generator silent beyond its deadline: a fault, and what it held is redone."""
SLOW_SECONDS = 12.0


def slow_trainer(system: System) -> None:
    system.slow_down("trainer", 0.3, SLOW_SECONDS)


def slow_generator(system: System) -> None:
    system.slow_down("g1", 0.15, SLOW_SECONDS)


def test_nothing_is_too_old_and_nothing_is_dropped(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings["budget"] = {"steps": 100_000}
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
            for slow in (slow_trainer, slow_generator):
                slow(system)
                system.wait_step(system.last_step + LAG + 2, 120)
            system.wait_step(25, 120)
            assert system.terminate("trainer") == 143, system.log("trainer")[-3000:]
        if "a generator was fenced" not in system.log("trainer"):
            break
    else:
        pytest.skip("the machine is too busy: a healthy generator missed its heartbeats in every attempt")
    assert max(int(age) for line in system.steps for age in line["staleness_tokens"]) <= LAG
    lines = system.lines("tasks.jsonl")
    outcomes = check_every_task_once(lines)
    assert set(outcomes) <= {"used", "filtered", "open"}, f"dropped without a fault: {outcomes}"
    assert not [line for line in lines if line["what"] == "redone"]
    assert outcomes["used"] + outcomes["filtered"] > 10 * GROUPS_PER_STEP
    check_nothing_was_left_behind(lines, LAG)  # the slow generator's groups and the long ones are among them
