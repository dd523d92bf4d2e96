"""Which evaluations make the curve, and what they are fitted against."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.curves.axis import choose_axis, compute_per_step
from rollcast.curves.evaluations import CurvePoint, EvaluationLog, RunHistory, validate_evaluation
from rollcast.curves.run_forecast import RunBudget, forecast_run, metric_grid
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve


def evaluation(
    step: int, *, incarnation: int = 1, compute: float | None = None, **more: object
) -> CurvePoint:
    values: dict[str, object] = {
        "run": "demo",
        "dataset": "arithmetic",
        "pass_rate": 0.5,
        "standard_error": 0.01,
        "trained_tokens": 1000.0 * step,
        "samples": 64.0,
        "at": 0.0,
    }
    values |= more
    return CurvePoint(
        incarnation=incarnation,
        step=step,
        compute=step / 100 if compute is None else compute,
        **values,  # type: ignore[arg-type]
    )


def versions(log: EvaluationLog) -> list[tuple[int, int]]:
    return [(item.incarnation, item.step) for item in log.sorted_out().curve_points]


def test_lost_steps_leave_the_curve_when_the_trainer_tells_where_it_continued() -> None:
    log = EvaluationLog()
    for step in (0, 10, 20, 30):
        log.add(evaluation(step))
    assert versions(log) == [(1, 0), (1, 10), (1, 20), (1, 30)]
    log.starts[2] = 25
    assert versions(log) == [(1, 0), (1, 10), (1, 20)]
    log.add(evaluation(30, incarnation=2))
    assert versions(log) == [(1, 0), (1, 10), (1, 20), (2, 30)]


def test_without_that_a_newer_incarnation_replaces_from_its_first_evaluation_on() -> None:
    log = EvaluationLog()
    for step in (0, 10, 20, 30, 40):
        log.add(evaluation(step))
    log.add(evaluation(30, incarnation=2))
    assert versions(log) == [(1, 0), (1, 10), (1, 20), (2, 30)]


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), max_size=30, unique=True),
    st.dictionaries(st.integers(2, 5), st.integers(0, 8)),
)
def test_surviving_is_what_a_slow_reading_of_the_rule_says(
    seen: list[tuple[int, int]], starts: dict[int, int]
) -> None:
    log = EvaluationLog(starts=dict(starts))
    for incarnation, step in seen:
        log.add(evaluation(step, incarnation=incarnation))

    def lost(incarnation: int, step: int) -> bool:
        for newer in range(incarnation + 1, 6):
            if newer in starts:
                if step > starts[newer]:
                    return True
            elif any(other == newer and first <= step for other, first in seen):
                return True
        return False

    surviving = [item for item in seen if not lost(*item)]
    newest = {
        step: max(number for number, other in surviving if other == step) for _, step in surviving
    }
    assert versions(log) == [(newest[step], step) for step in sorted(newest)]


def test_the_first_reading_of_a_version_stands() -> None:
    log = EvaluationLog()
    assert log.add(evaluation(10, pass_rate=0.4))
    assert not log.add(evaluation(10, pass_rate=0.9))
    assert log.sorted_out().curve_points[0].pass_rate == 0.4


@pytest.mark.parametrize(
    "change",
    [
        {"pass_rate": 1.2},
        {"pass_rate": math.nan},
        {"compute": -1.0},
        {"compute": 5e-324},
        {"compute": math.inf},
        {"step": -1},
        {"run": ""},
        {"run": "a/b"},
        {"run": "x" * 300},
    ],
)
def test_an_impossible_evaluation_is_refused(change: dict[str, object]) -> None:
    fields = {"step": 10, **change}
    with pytest.raises(ValueError, match=r"\w"):
        validate_evaluation(evaluation(**fields))  # type: ignore[arg-type]


def curve_of_law(rates: np.ndarray) -> tuple[CurvePoint, ...]:
    """Tokens grow evenly; each interval costs `rates` device-hours per unit of tokens, and has as
    many devices.
    """
    tokens = np.arange(rates.size + 1) / rates.size
    compute = np.append(0.0, np.cumsum(rates / rates.size))
    pass_rate = 0.2 + 0.6 / (1 + (0.3 / np.maximum(tokens, 1e-9)) ** 1.5)
    return tuple(
        evaluation(
            i,
            compute=float(compute[i]),
            trained_tokens=float(tokens[i]),
            pass_rate=float(pass_rate[i]),
            devices=8 * round(rates[max(0, i - 1)]),
        )
        for i in range(rates.size + 1)
    )


def test_an_even_fleet_is_fitted_on_device_hours() -> None:
    rng = np.random.default_rng(0)
    axis = choose_axis(curve_of_law(1.0 + 0.04 * rng.standard_normal(24)))
    assert axis.quantity == "device_hours"
    np.testing.assert_allclose(axis.to_fitted(np.array([0.3, 2.0])), [0.3, 2.0])


def test_a_doubled_fleet_is_fitted_on_tokens_and_answers_in_device_hours() -> None:
    rates = np.where(np.arange(24) < 12, 1.0, 2.0)
    points = curve_of_law(rates)
    axis = choose_axis(points)
    assert axis.quantity == "trained_tokens"
    compute = np.array([item.compute for item in points])
    np.testing.assert_allclose(axis.to_device_hours(axis.to_fitted(compute)), compute, atol=1e-12)
    far = np.array([compute[-1] + 3.0])
    np.testing.assert_allclose(axis.to_device_hours(axis.to_fitted(far)), far)
    # One token more costs 2 device-hours now: 3 device-hours are 1.5 of the tokens so far.
    np.testing.assert_allclose(axis.to_fitted(far) / axis.fitted[-1], [2.5])

    run = forecast_run(RunHistory("demo", points), RunBudget(), sequence=1, updated_at=0.0)
    assert run is not None
    expected = 0.2 + 0.6 / (1 + (0.3 / 2.5) ** 1.5)
    assert abs(float(run.law(far, (0.5,))[0, 0]) - expected) < 0.01
    naive = fit(Curve.from_points(compute, [item.pass_rate for item in points]))
    assert abs(float(naive.pass_rate(far, (0.5,))[0, 0]) - expected) > abs(
        float(run.law(far, (0.5,))[0, 0]) - expected
    )


@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(0.2, 5.0), st.floats(0.2, 5.0)), min_size=1, max_size=14))
def test_a_slow_or_fast_stretch_is_no_change_of_the_fleet(rates: list[tuple[float, float]]) -> None:
    """However the cost of steps and tokens scatters on a shared machine,
    the axis stays what it is.
    """
    compute, tokens = (np.cumsum(values) for values in np.array(rates).T)
    points = tuple(
        evaluation(
            10 * i + 10, compute=compute[i], trained_tokens=tokens[i], start_up=0.0, devices=8
        )
        for i in range(len(rates))
    )
    for known in range(1, len(points) + 1):
        assert choose_axis(points[:known]).quantity == "device_hours"


@settings(max_examples=25)
@given(st.lists(st.integers(1, 16), min_size=2, max_size=12))
def test_the_axis_changes_with_the_devices_once_and_stays(devices: list[int]) -> None:
    points = tuple(
        evaluation(10 * i + 10, compute=i + 1.0, start_up=0.0, devices=number)
        for i, number in enumerate(devices)
    )
    said = [choose_axis(points[:known]).quantity for known in range(1, len(points) + 1)]
    expected = [
        "trained_tokens" if max(devices[:known]) > 1.1 * min(devices[:known]) else "device_hours"
        for known in range(1, len(points) + 1)
    ]
    assert said == expected
    assert said == sorted(said)


def test_longer_answers_are_no_change_of_the_fleet() -> None:
    """Steps cost the same while their tokens grow by a half, and the other way round."""
    tokens = np.cumsum(np.append(0.0, np.where(np.arange(24) < 12, 1.0, 1.5)))
    for compute in (np.arange(25) / 24, tokens / tokens[-1]):
        points = tuple(
            evaluation(10 * i, compute=compute[i], trained_tokens=tokens[i]) for i in range(25)
        )
        assert choose_axis(points).quantity == "device_hours"


def test_the_start_up_of_engines_is_no_part_of_the_law() -> None:
    """0.4 device-hours go by before the first step; the law is that of the steps, the answers count
    everything.
    """
    points = curve_of_law(np.ones(24))
    late = tuple(
        evaluation(
            item.step,
            compute=item.compute + 0.4,
            pass_rate=item.pass_rate,
            trained_tokens=item.trained_tokens,
        )
        if item.step
        else item
        for item in points
    )
    axis = choose_axis(late)
    np.testing.assert_allclose(axis.to_fitted(np.array([0.2, 0.4, 1.4, 3.4])), [0.0, 0.0, 1.0, 3.0])
    np.testing.assert_allclose(axis.to_device_hours(np.array([0.5, 1.0, 3.0])), [0.9, 1.4, 3.4])
    prompt, delayed = (
        forecast_run(RunHistory("demo", run), RunBudget(), sequence=1, updated_at=0.0)
        for run in (points, late)
    )
    assert prompt is not None
    assert delayed is not None
    np.testing.assert_allclose(delayed.law([3.4]), prompt.law([3.0]), atol=1e-4)
    np.testing.assert_allclose(
        delayed.compute_to_target(0.7), prompt.compute_to_target(0.7) + 0.4, rtol=1e-3
    )


def restarted(*, told: bool) -> tuple[CurvePoint, ...]:
    """Steps of 0.01 device-hours each; 0.4 for the first start-up, 0.5 for that after a kill
    between 50 and 60.
    """
    return tuple(
        evaluation(
            step,
            incarnation=1 + (step > 50),
            compute=0.0 if step == 0 else 0.4 + 0.01 * step + 0.5 * (step > 50),
            start_up=(0.0 if step == 0 else 0.4 + 0.5 * (step > 50)) if told else None,
        )
        for step in range(0, 101, 10)
    )


@pytest.mark.parametrize("told", [True, False])
def test_the_start_up_after_a_restart_is_no_part_of_the_law_either(told: bool) -> None:
    points = restarted(told=told)
    axis = choose_axis(points)
    compute = np.array([item.compute for item in points])
    np.testing.assert_allclose(
        axis.to_fitted(compute), [0.01 * item.step for item in points], atol=1e-12
    )
    np.testing.assert_allclose(axis.to_device_hours(axis.to_fitted(compute))[1:], compute[1:])
    assert axis.start_up == pytest.approx(0.9)


@pytest.mark.parametrize("told", [True, False])
def test_the_cost_of_a_step_spans_no_start_up(told: bool) -> None:
    """The end of a budget in steps was put at three times its place where two evaluations were
    known.
    """
    points = restarted(told=told)
    assert RunBudget(steps=200).end(points) == pytest.approx(0.9 + 2.0)
    assert compute_per_step(points[:7]) == pytest.approx(0.01)
    if told:
        assert compute_per_step(points[:2]) == pytest.approx(0.01)
        assert RunBudget(steps=100).end(points[:2]) == pytest.approx(1.4)


def test_of_what_one_evaluation_does_not_tell_the_last_is_taken() -> None:
    points = restarted(told=True)
    partly = (*points[:3], replace(points[3], start_up=None), *points[4:])
    np.testing.assert_array_equal(choose_axis(partly).fitted, choose_axis(points).fitted)


def test_a_start_up_is_no_part_of_what_a_token_costs() -> None:
    """After a change of the fleet and a restart a quarter more tokens cost as much as without the
    restart.
    """
    plain = tuple(
        replace(item, start_up=0.0) for item in curve_of_law(np.where(np.arange(24) < 12, 1.0, 2.0))
    )
    late = tuple(
        replace(item, incarnation=2, compute=item.compute + 0.5, start_up=0.5)
        if item.step > 21
        else item
        for item in plain
    )
    axes = [choose_axis(points) for points in (plain, late)]
    assert [axis.quantity for axis in axes] == ["trained_tokens"] * 2
    further = [
        axis.to_device_hours(1.25 * axis.fitted[-1:]) - axis.device_hours[-1] for axis in axes
    ]
    np.testing.assert_allclose(further[1], further[0])


def test_the_budget_in_steps_ends_at_the_measured_compute_per_step() -> None:
    points = tuple(
        evaluation(step, compute=step * 0.01 if step <= 50 else 0.5 + (step - 50) * 0.03)
        for step in range(0, 101, 5)
    )
    assert compute_per_step(points) == pytest.approx(0.03)
    assert RunBudget(steps=200).end(points) == pytest.approx(2.0 + 100 * 0.03)
    assert RunBudget(steps=200, device_hours=3.0).end(points) == pytest.approx(3.0)
    assert RunBudget().end(points) is None


def test_no_forecast_before_the_first_evaluation_after_the_start() -> None:
    assert (
        forecast_run(
            RunHistory("demo", (evaluation(0, compute=0.001),)),
            RunBudget(),
            sequence=1,
            updated_at=0.0,
        )
        is None
    )
    run = forecast_run(
        RunHistory("demo", (evaluation(0), evaluation(10))),
        RunBudget(steps=100),
        sequence=1,
        updated_at=0.0,
    )
    assert run is not None
    grid = metric_grid(run)
    assert len(set(grid)) == 40
    assert list(grid) == sorted(grid)
    assert grid[-1] == pytest.approx(4.0, rel=0.01)
