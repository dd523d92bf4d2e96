"""The decision in charge of a simulated fleet around the real gate and schedule: the benchmark's
scenarios, shorter.

`python -m benchmarks.autoscaler` has the whole ones; results/autoscaler.json their figures.
"""

from __future__ import annotations

import math

from rollcast.config.autoscaler import Autoscaler
from testkit.autoscaler.policies import Rollcast
from testkit.autoscaler.runs import (
    Run,
    finish,
    run_fixed,
    start,
    with_rollcast,
    with_rollcast_through_hpa,
)
from testkit.autoscaler.scenarios import ENGINE, LAG, Scenario

SETTINGS = Autoscaler(mode="controller", deployment="generators", most=96)


def jump(progress: float) -> float:
    return 3_000.0 if progress < 0.4 else 6_000.0


def with_rollcast_restarted(
    scenario: Scenario, generators: int, settings: Autoscaler, *, restart_at: float
) -> Run:
    """The finished run of an autoscaler in mode controller whose process is replaced at
    `restart_at` seconds.
    """
    run = start(scenario, generators)
    rollcast = Rollcast(run.fleet, settings, ENGINE)
    waiting = [restart_at]

    def policy() -> None:
        if waiting and run.pipeline.now >= waiting[0]:
            waiting.clear()
            rollcast.restart()
        rollcast()

    run.policy = policy
    finish(run)
    return run


def test_answers_that_grow_take_fewer_device_hours_than_the_fleet_of_their_end() -> None:
    growth = Scenario(
        name="growth", steps=160, mean_tokens=lambda progress: 2_000 + 8_000 * progress
    )
    still, scaled = run_fixed(growth, 64), with_rollcast(growth, 20, SETTINGS)
    assert still["idle_last_quarter"]["all"] < 0.05
    assert scaled["device_hours"] < 0.87 * still["device_hours"]
    assert scaled["idle"]["all"] < 0.05
    assert scaled["staleness_max"] <= LAG


def test_an_hpa_without_tolerance_does_what_the_controller_does() -> None:
    scenario = Scenario(name="jump", steps=60, mean_tokens=jump)
    keda = SETTINGS.model_copy(update={"mode": "keda", "hpa_tolerance": 0.0})
    direct = with_rollcast(scenario, 28, SETTINGS)
    assert with_rollcast_through_hpa(scenario, 28, keda, tolerance=0.0) == direct
    coarse = with_rollcast_through_hpa(
        scenario, 28, SETTINGS.model_copy(update={"mode": "keda"}), tolerance=0.1
    )
    assert coarse["idle_last_quarter"]["all"] < 0.05, (
        "a rise that the HPA ignores would starve the trainer"
    )


def test_a_restart_lets_no_generator_go_in_the_hour_after_it() -> None:
    """The need stays what it was, and without the restart the number stays too: nothing measured
    asks for fewer.
    """
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
        scenario = Scenario(
            name="stragglers", steps=80, mean_tokens=lambda _: 4_000.0, stragglers=share
        )
        run = with_rollcast(scenario, 33, SETTINGS)
        most[share] = run["generators_most"]
        assert (run["idle"].get("straggler", 0.0) > 0.1) == (share > 0), (
            "the scenario does have them"
        )
    assert most[0.002] <= most[0.0]
