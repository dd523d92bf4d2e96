"""`stop_when` on planted curves: it ends what is not worth going on with, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.config.services import Budget, StopWhen
from rollcast.trainer.early_stop import EarlyStop
from rollcast.trainer.evaluation import Evaluation


def evaluation(step: int, pass_rate: float, device_hours: float) -> Evaluation:
    return Evaluation(
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
        ungraded=0,
        missing_prompts=0,
        version_min="",
        version_max="",
        at=0.0,
    )


def stopped_at(settings: StopWhen, budget: Budget, *, midpoint: float, last: int = 400) -> tuple[int | None, str]:
    """Step at which a run that follows the law (R_0 = 0.2, A = 0.8, B = 2) is ended, and why."""
    rng = np.random.default_rng(3)
    stop = EarlyStop(settings, budget, [])
    for step in range(0, last + 1, 10):
        law = 0.2 + 0.6 / (1 + (midpoint / max(step, 1e-9)) ** 2)
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
    step, reason = stopped_at(StopWhen(least_gain=0.0), Budget(), midpoint=12, last=800)
    assert step is not None
    assert "saturated" in reason


def test_a_run_that_still_climbs_goes_on() -> None:
    assert stopped_at(StopWhen(least_gain=0.05), Budget(steps=4000), midpoint=400) == (None, "")


def test_earlier_points_come_back_with_the_checkpoint_but_three_new_refits_are_needed() -> None:
    points: list[list[float]] = []
    first = EarlyStop(StopWhen(least_gain=0.05, on_saturated=False), Budget(steps=400), points)
    later = []
    for step in range(0, 401, 10):
        law = 0.2 + 0.6 / (1 + (40 / max(step, 1e-9)) ** 2)
        point = evaluation(step, law, 0.01 * step)
        (later.append if first.reason else first.observe)(point)
    assert first.reason is not None
    resumed = EarlyStop(StopWhen(least_gain=0.05, on_saturated=False), Budget(steps=400), [list(p) for p in points])
    reasons = []
    for point in later[:3]:
        resumed.observe(point)
        reasons.append(resumed.reason is not None)
    assert reasons == [False, False, True]
