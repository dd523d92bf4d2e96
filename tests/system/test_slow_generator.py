"""The bound on the real system, with long-tailed lengths: a generator becomes 20 times slower, then
the trainer slow.

The generator hands its groups over, and nothing is lost, dropped or too old.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from testkit.forked_programs import ForkedPrograms
from testkit.system.audit import check_every_task_once, check_nothing_was_left_behind
from testkit.system.harness import System, wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(600)]

LAG, GROUPS_PER_STEP = 2, 8
SLOW_SECONDS = 12.0
UNHURRIED_SECONDS = 60.0
"""On a busy machine a healthy generator is silent for long; taken for dead, what it held would be
redone."""


def test_a_much_slower_generator_hands_its_groups_over_and_nothing_is_dropped_or_too_old(
    tmp_path: Path, settings: dict[str, Any], programs: ForkedPrograms
) -> None:
    settings["budget"] = {"steps": 100_000}
    settings["recipe"]["schedule"]["max_staleness"] = LAG
    # Operands of 1 to 4 digits: completions of 8 to 40 tokens. The long ones are never right, so
    # their groups are filtered: they must be counted and must not starve.
    settings["tasks"]["dataset"]["max_digits"] = 4
    settings["tasks"]["evaluation"]["every_steps"] = 50
    settings["weights"] = {
        "heartbeat_timeout_seconds": UNHURRIED_SECONDS,
        "bucket_timeout_seconds": UNHURRIED_SECONDS,
    }
    with System(tmp_path, settings, programs) as system:
        system.start_trainer()
        system.start_generator("g0")
        system.start_generator("g1")
        wait_for(
            lambda: system.last_step >= 2 and works(system, "g1"),
            240,
            "the first steps, with both generators",
        )
        # It stays slow until it has heard: at full speed it may end its groups before.
        deadline = time.monotonic() + 150
        while not handed_back(system) and time.monotonic() < deadline:
            system.slow_down("g1", 0.05, 1.0)
        # Only now: in a run whose trainer was slow before, nothing was ever handed over.
        system.slow_down("trainer", 0.3, SLOW_SECONDS)
        system.wait_step(max(25, system.last_step + LAG + 2), 120)
        stopped = handed_back(system)
        asked = handed_over(system)
        assert system.terminate("trainer") == 143, system.log("trainer")[-3000:]
    assert 0 < stopped <= len(asked), (
        "those that ended before they were asked for were handed in as usual"
    )
    assert max(int(age) for line in system.steps for age in line["staleness_tokens"]) <= LAG
    lines = system.lines("tasks.jsonl")
    outcomes = check_every_task_once(lines)
    assert set(outcomes) <= {"used", "filtered", "open"}, f"dropped without a fault: {outcomes}"
    assert not [line for line in lines if line["what"] == "redone"]
    assert outcomes["used"] + outcomes["filtered"] > 10 * GROUPS_PER_STEP
    check_nothing_was_left_behind(lines, LAG)  # what was handed over and the long ones are among it


def handed_over(system: System) -> list[int]:
    return [
        task
        for line in system.lines("tasks.jsonl")
        if line["what"] == "handed_over"
        for task in line["tasks"]
    ]


def works(system: System, generator: str) -> bool:
    with suppress(
        OSError, ValueError, httpx.HTTPError
    ):  # it starts beside its peer, and may come later
        return system.metrics(generator).get(("rollcast_running_rollouts", ()), 0.0) > 0
    return False


def handed_back(system: System) -> float:
    """Groups that the slow generator stopped because it was asked to."""
    return system.metrics("g1").get(("rollcast_hand_overs_total", ()), 0.0)
