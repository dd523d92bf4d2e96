"""`stop_when` on planted curves: it ends what is not worth going on with, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollcast.config.run_end import Budget, StopWhen
from rollcast.curves.run_forecast import forecast_history
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.trainer.control.early_stop import EarlyStop
from rollcast.trainer.control.progress import CurveRow, Progress


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
        stop.observe(
            evaluation(step, float(np.clip(law + 0.004 * rng.standard_normal(), 0, 1)), 0.01 * step)
        )
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
    assert stopped_at(
        StopWhen(least_gain=0.0, on_saturated=False), Budget(), midpoint=12, last=800
    ) == (None, "")


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

    points: list[CurveRow] = []
    undisturbed = EarlyStop(settings, budget, points)
    step = 0
    while undisturbed.reason is None:
        undisturbed.observe(point(step))
        step += 10
    resumed = EarlyStop(settings, budget, points[:-1])
    assert resumed.reason is None
    resumed.observe(point(step - 10))
    assert resumed.reason == undisturbed.reason
    assert EarlyStop(settings, budget, points).reason == undisturbed.reason, (
        "a run that ended so ends at once"
    )


def test_an_evaluation_with_too_few_prompts_graded_is_left_out() -> None:
    """Between the points of a run that still climbs, points at its ceiling of which half the
    prompts are lost.
    """
    points: list[CurveRow] = []
    stop = EarlyStop(StopWhen(least_gain=0.05), Budget(steps=4000), points)
    for step in range(0, 400, 20):
        stop.observe(evaluation(step, 0.2 + 0.6 / (1 + (400 / max(step, 1e-9)) ** 2), 0.01 * step))
        lossy = evaluation(step + 5, 0.999, 0.01 * step + 0.05)
        stop.observe(replace(lossy, num_prompts=20, asked_prompts=40, missing_prompts=20))
    assert stop.reason is None
    assert [point[0] for point in points] == list(range(0, 400, 20))
    stop.observe(
        replace(evaluation(400, 0.5, 4.0), num_prompts=36, asked_prompts=40, missing_prompts=4)
    )
    assert points[-1][:2] == (400, 0.5), "nine tenths are enough"


def test_the_rule_judges_by_the_axis_of_the_forecast(tmp_path: Path) -> None:
    """2 device-hours of start-up, then 0.01 a step; from step 200 on twice the devices, so that a
    step costs twice.
    """
    points: list[CurveRow] = []
    stop = EarlyStop(StopWhen(), Budget(device_hours=20.0), points)
    lines = []
    for step in range(0, 401, 20):
        rate = 0.2 + 0.6 / (1 + (100 / max(step, 1e-9)) ** 2)
        hours = 0.01 * (step + max(step - 200, 0))
        one = replace(
            evaluation(step, rate, 2.0 + hours if step else 0.0),
            start_up_device_hours=2.0 if step else 0.0,
            devices=2 if step <= 200 else 4,
            trained_tokens=1_000 * step,
        )
        lines.append(json.dumps(as_json(one)))
        stop.observe(one)
    (tmp_path / "format.json").write_text('{"format": 1}')
    (tmp_path / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    history, _, _ = history_of_folder(tmp_path, None)
    run = forecast_history(replace(history, budget_device_hours=20.0))
    assert run.fitted_on == "trained_tokens"
    refit = stop._refits[-1]
    assert refit.verdict is run.forecast.verdict.kind
    assert refit.compute == pytest.approx(float(run.forecast.curve.compute[-1]))
    assert refit.gain_upper == pytest.approx(run.expected_gain(20.0)[2])


def test_points_that_an_earlier_release_kept_go_on() -> None:
    kept = Progress.from_json(Progress().as_json() | {"curve": [[20, 0.3, 0.01, 0.2]]}).curve
    assert kept == [(20, 0.3, 0.01, 0.2, None, None, None, None)]
    stop = EarlyStop(StopWhen(), Budget(steps=400), kept)
    stop.observe(evaluation(40, 0.4, 0.4))
    assert len(stop._refits) == 2
