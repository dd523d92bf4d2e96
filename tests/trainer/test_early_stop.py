"""`stop_when` on planted curves: it ends what is not worth going on with, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollcast.config.services import Budget, StopWhen
from rollcast.runfolder.records import EvaluationRecord
from rollcast.trainer.control.early_stop import EarlyStop


def evaluation(step: int, pass_rate: float, device_hours: float) -> EvaluationRecord:
    return EvaluationRecord(
        run="r",
        dataset="d",
        incarnation=1,
        step=step,
        pass_rate=pass_rate,
        standard_error=0.004,
        compute_device_hours=device_hours,
        trained_tokens=0,
        samples=0,
        num_prompts=0,
        generated_tokens=0,
        timed_out=0,
        ungraded=0,
        missing_prompts=0,
        version_min="",
        version_max="",
        at=0.0,
    )


def stopped_at(
    settings: StopWhen, budget: Budget, *, midpoint: float, last: int = 400, top: float = 0.8
) -> tuple[int | None, str]:
    """Step at which a run that follows the law (R_0 = 0.2, A = `top`, B = 2) is ended, and why."""
    rng = np.random.default_rng(3)
    stop = EarlyStop(settings, budget, [])
    for step in range(0, last + 1, 20):
        law = 0.2 + (top - 0.2) / (1 + (midpoint / max(step, 1e-9)) ** 2)
        stop.observe(evaluation(step, float(np.clip(law + 0.004 * rng.standard_normal(), 0, 1)), 0.01 * step))
        if stop.reason is not None:
            return step, stop.reason
    return None, ""


@pytest.mark.parametrize("budget", [Budget(steps=400), Budget(device_hours=4.0)])
def test_a_run_whose_rest_gains_too_little_is_ended_when_that_is_true(budget: Budget) -> None:
    step, reason = stopped_at(StopWhen(least_gain=0.05, on_saturated=False), budget, midpoint=40)
    assert step is not None
    assert "gains at most" in reason
    rest = 0.6 / (1 + (40 / 400) ** 2) - 0.6 / (1 + (40 / step) ** 2)
    assert rest < 0.05, "what the law still had to give"
    assert step < 300, "not merely at the end"


def test_a_saturated_run_is_ended_without_any_budget() -> None:
    step, reason = stopped_at(StopWhen(least_gain=0.0), Budget(), midpoint=12, last=800, top=1.0)
    assert step is not None
    assert "saturated" in reason
    flat_below_it = stopped_at(StopWhen(least_gain=0.0), Budget(), midpoint=12, last=800, top=0.8)
    assert flat_below_it[0] is not None, "a flat top is saturated at any level"
    assert stopped_at(StopWhen(least_gain=0.0, on_saturated=False), Budget(), midpoint=12, last=800) == (None, "")


def test_a_run_that_still_climbs_goes_on() -> None:
    assert stopped_at(StopWhen(least_gain=0.05), Budget(steps=4000), midpoint=400) == (None, "")


def test_a_run_that_learns_nothing_is_ended_and_the_reason_says_so() -> None:
    step, reason = stopped_at(StopWhen(), Budget(steps=400), midpoint=100_000)
    assert step is not None
    assert 100 <= step < 400
    assert "no learning" in reason


def test_a_restart_decides_as_if_there_had_been_none() -> None:
    settings, budget = StopWhen(least_gain=0.05, on_saturated=False), Budget(steps=400)

    def point(step: int) -> EvaluationRecord:
        return evaluation(step, 0.2 + 0.6 / (1 + (40 / max(step, 1e-9)) ** 2), 0.01 * step)

    points: list[list[float]] = []
    undisturbed = EarlyStop(settings, budget, points)
    step = 0
    while undisturbed.reason is None:
        undisturbed.observe(point(step))
        step += 10
    resumed = EarlyStop(settings, budget, [list(values) for values in points[:-1]])
    assert resumed.reason is None
    resumed.observe(point(step - 10))
    assert resumed.reason == undisturbed.reason
    assert EarlyStop(settings, budget, points).reason == undisturbed.reason, "a run that ended so ends at once"


def test_an_evaluation_with_too_few_prompts_graded_is_left_out() -> None:
    """Between the points of a run that still climbs, points at its ceiling of which half the prompts are lost."""
    points: list[list[float]] = []
    stop = EarlyStop(StopWhen(least_gain=0.05), Budget(steps=4000), points)
    for step in range(0, 400, 20):
        stop.observe(evaluation(step, 0.2 + 0.6 / (1 + (400 / max(step, 1e-9)) ** 2), 0.01 * step))
        lossy = evaluation(step + 5, 0.999, 0.01 * step + 0.05)
        stop.observe(replace(lossy, num_prompts=20, asked_prompts=40, missing_prompts=20))
    assert stop.reason is None
    assert [point[0] for point in points] == list(range(0, 400, 20))
    stop.observe(replace(evaluation(400, 0.5, 4.0), num_prompts=36, asked_prompts=40, missing_prompts=4))
    assert points[-1][:2] == [400, 0.5], "nine tenths are enough"


def test_start_up_costs_do_not_shorten_the_rest_of_the_budget() -> None:
    """2 device-hours of start-up, then 0.01 a step: a budget of 10 is 800 steps, not 333."""
    stop = EarlyStop(StopWhen(), Budget(device_hours=10.0), [])
    step = np.linspace(0.0, 100.0, 11)
    assert stop._last_step(step, np.where(step > 0, 2.0 + 0.01 * step, 0.0)) == pytest.approx(800.0)
