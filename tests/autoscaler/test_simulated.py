"""The decision in charge of a simulated fleet around the real gate and schedule: the benchmark's scenarios, shorter.

`python -m benchmarks.autoscaler` has the whole ones; results/autoscaler.json their figures.
"""

from __future__ import annotations

import math

import pytest

from rollcast.config.autoscaler import Autoscaler
from testkit.autoscaler.policies import Hpa
from testkit.autoscaler.runs import (
    fixed,
    start,
    turns,
    with_rollcast,
    with_rollcast_restarted,
    with_rollcast_through_hpa,
)
from testkit.autoscaler.scenarios import LAG, Scenario

SETTINGS = Autoscaler(mode="controller", deployment="generators", most=96)


def jump(progress: float) -> float:
    return 3_000.0 if progress < 0.4 else 6_000.0


def test_answers_that_grow_are_followed_with_fewer_device_hours_than_the_fleet_that_their_end_needs() -> None:
    growth = Scenario(name="growth", steps=160, mean_tokens=lambda progress: 2_000 + 8_000 * progress)
    still, scaled = fixed(growth, 64), with_rollcast(growth, 20, SETTINGS)
    assert still["idle_last_quarter"]["all"] < 0.05
    assert scaled["device_hours"] < 0.87 * still["device_hours"]
    assert scaled["idle"]["all"] < 0.05
    assert scaled["staleness_max"] <= LAG


def test_a_jump_is_followed_without_swinging() -> None:
    scenario = Scenario(name="jump", steps=160, mean_tokens=jump, turns_from=64)
    scaled = with_rollcast(scenario, 28, SETTINGS)
    assert scaled["turns"] <= 1
    assert 42 <= scaled["generators_last"] <= 52, "45 feed it"
    assert scaled["idle_last_quarter"]["all"] < 0.05


def test_an_hpa_without_tolerance_does_what_the_controller_does() -> None:
    scenario = Scenario(name="jump", steps=60, mean_tokens=jump)
    keda = SETTINGS.model_copy(update={"mode": "keda", "hpa_tolerance": 0.0})
    direct = with_rollcast(scenario, 28, SETTINGS)
    assert with_rollcast_through_hpa(scenario, 28, keda, tolerance=0.0) == direct
    coarse = with_rollcast_through_hpa(scenario, 28, SETTINGS.model_copy(update={"mode": "keda"}), tolerance=0.1)
    assert coarse["idle_last_quarter"]["all"] < 0.05, "a rise that the HPA ignores would starve the trainer"


def test_a_restart_lets_no_generator_go_in_the_hour_after_it() -> None:
    """The need stays what it was, and without the restart the number stays too: nothing measured asks for fewer."""
    scenario = Scenario(name="restart", steps=240, mean_tokens=lambda _: 10_000.0)
    hour = (9_000.0, 12_600.0)
    for restart_at in (math.inf, hour[0]):
        run = with_rollcast_restarted(scenario, 70, SETTINGS, restart_at=restart_at)
        sizes = [size for at, size in run.fleet.sizes if hour[0] <= at <= hour[1]]
        assert run.pipeline.now > hour[1]
        assert sizes == [], f"restarted at {restart_at:.0f} s"


def test_stragglers_do_not_raise_the_number() -> None:
    most = {}
    for share in (0.0, 0.002):
        scenario = Scenario(name="stragglers", steps=80, mean_tokens=lambda _: 4_000.0, stragglers=share)
        run = with_rollcast(scenario, 33, SETTINGS)
        most[share] = run["generators_most"]
        assert (run["idle"].get("straggler", 0.0) > 0.1) == (share > 0), "the scenario does have them"
    assert most[0.002] <= most[0.0]


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
    [([], 0), ([5], 0), ([5, 6, 9], 0), ([5, 9, 6], 1), ([5, 9, 8, 9, 8], 0), ([9, 5, 8, 4, 8], 3), ([5, 4, 5, 4], 0)],
)
def test_turns_of_more_than_one_generator_are_counted(sizes: list[int], expected: int) -> None:
    assert turns(sizes) == expected
