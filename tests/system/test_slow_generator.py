"""A generator that has become 20 times slower than its peer hands its groups over, and nothing is lost or too old."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.harness import System, wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(300)]

LAG = 2


def test_a_much_slower_generator_hands_its_groups_over(tmp_path: Path, settings: dict[str, Any]) -> None:
    settings["budget"] = {"steps": 45}
    settings["recipe"]["schedule"]["max_staleness"] = LAG
    settings["tasks"]["dataset"]["max_digits"] = 4  # 8 to 40 tokens
    settings["tasks"]["evaluation"]["every_steps"] = 45
    with System(tmp_path, settings) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(lambda: system.last_step >= 2, 240, "the first steps")
        deadline = time.monotonic() + 60
        while not handed_over(system) and time.monotonic() < deadline:
            system.slow_down("g1", 0.05, 1.0)
        assert system.wait_end(240) == 0, system.log("trainer")[-3000:]
        asked = handed_over(system)
        handed_back = system.metrics("g1").get(("rollcast_hand_overs_total", ()), 0.0)
    assert 0 < handed_back <= len(asked), "those that ended before they were asked for were handed in as usual"
    assert max(int(age) for line in system.steps for age in line["staleness_tokens"]) <= LAG
    lines = system.lines("tasks.jsonl")
    outcomes = check_every_task_once(lines)
    assert set(outcomes) <= {"used", "filtered", "open"}, f"dropped without a fault: {outcomes}"
    assert not [line for line in lines if line["what"] == "redone"]
    check_nothing_was_left_behind(lines, LAG)  # what was handed over is among it


def handed_over(system: System) -> list[int]:
    return [task for line in system.lines("tasks.jsonl") if line["what"] == "handed_over" for task in line["tasks"]]
