"""The decision in charge of a simulated fleet around the real gate and schedule, also restarted
during a fault.

test_simulated_runs.py and test_fails_safe.py have more of both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.autoscaler import Autoscaler
from testkit.autoscaler.policies import Hpa
from testkit.autoscaler.runs import (
    start,
    turns,
    with_rollcast,
)
from testkit.autoscaler.scenarios import Scenario
from tests.autoscaler.faults import check_restart_during

SETTINGS = Autoscaler(mode="controller", deployment="generators", most=96)


def jump(progress: float) -> float:
    return 3_000.0 if progress < 0.4 else 6_000.0


def test_a_jump_is_followed_without_swinging() -> None:
    scenario = Scenario(name="jump", steps=160, mean_tokens=jump, turns_from=64)
    scaled = with_rollcast(scenario, 28, SETTINGS)
    assert scaled["turns"] <= 1
    assert 42 <= scaled["generators_last"] <= 52, "45 feed it"
    assert scaled["idle_last_quarter"]["all"] < 0.05


def test_the_hpa_of_the_benchmark_does_what_kubernetes_says_it_does() -> None:
    """Tolerance, ceiling, stabilization and the pods of a period, on metrics given by hand."""
    run = start(Scenario(name="hpa", steps=1, mean_tokens=lambda _: 2_000.0), 10)
    metric = [0.0]
    hpa = Hpa(run.fleet, lambda: metric[0], 1.0, 1, 20)

    def after(seconds: float, value: float) -> int:
        metric[0] = value
        run.fleet.pipeline.run_until(run.fleet.pipeline.now + seconds)
        hpa()
        return run.fleet.pods

    assert after(15, 10.9) == 10, "within 10 %"
    assert after(15, 11.2) == 12
    assert after(15, 30.0) == 20, "the most there may be"
    assert after(15, 5.0) == 20, "more was wanted within ten minutes"
    assert after(580, 5.0) == 20
    assert after(15, 5.0) == 19, "one pod a period"
    assert after(15, 5.0) == 19
    assert after(120, 5.0) == 18


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], 0),
        ([5], 0),
        ([5, 6, 9], 0),
        ([5, 9, 6], 1),
        ([5, 9, 8, 9, 8], 0),
        ([9, 5, 8, 4, 8], 3),
        ([5, 4, 5, 4], 0),
    ],
)
def test_turns_of_more_than_one_generator_are_counted(sizes: list[int], expected: int) -> None:
    assert turns(sizes) == expected


@pytest.mark.parametrize("fault", ["no prometheus", "spot nodes"])
def test_a_restart_in_the_middle_of_another_fault_lets_nobody_go(
    fault: str, tmp_path: Path
) -> None:
    check_restart_during(fault, "controller", tmp_path)
