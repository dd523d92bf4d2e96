"""The law and simple methods together: against slow loops, and against a density that is
integrated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.outlook.combined import combine_quantiles
from rollcast.scaling.outlook.simple import Summary
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR
from rollcast.scaling.posterior.stack import Stack, learned_stack

LEVELS: Array = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
STACK = learned_stack()
SUMMARY = Summary(
    newest_compute=10.0,
    smoothed=0.42,
    last=0.45,
    last_five=0.41,
    last_tenth=0.43,
    log_slope=0.05,
    late_log_slope=0.02,
    coarse_error=0.0,
)


def methods_by_hand(summary: Summary, compute: float, law_gain: float) -> list[float]:
    """The seven forecasts, in the order of their names in `outlook/simple.py`."""
    log_ahead = math.log(min(max(compute / summary.newest_compute, 1.0), 12.0))
    slopes = [
        summary.smoothed + slope * log_ahead
        for slope in (summary.log_slope, summary.late_log_slope)
    ]
    return [
        summary.smoothed,
        summary.last,
        summary.last_five,
        summary.last_tenth,
        summary.smoothed + law_gain,
        *(min(max(value, 0.0), 1.0) for value in slopes),
    ]


def sides_by_hand(
    stack: Stack, summary: Summary, methods: list[float], width: float
) -> tuple[float, float, float]:
    """Centre, and scale above and below it."""
    centre = sum(weight * value for weight, value in zip(stack.weights, methods, strict=True))
    mean = sum(methods) / 7
    spread = math.sqrt(sum((value - mean) ** 2 for value in methods) / 7)
    terms = (1.0, math.log(width + 0.002), math.log(spread + 0.002))
    scale = (
        math.exp(sum(factor * term for factor, term in zip(stack.scale, terms, strict=True)))
        + 0.002
    )
    tilt = math.tanh(stack.side[0] + stack.side[1] * (2 * summary.smoothed - 1))
    return centre, scale * math.exp(tilt), scale * math.exp(-tilt)


def test_the_simple_methods_forecast_as_the_two_sided_density_integrates() -> None:
    """The law is a single value here, so that twice the average minus it is the other
    distribution.
    """
    stack = replace(STACK, side=(0.4, -0.5), degrees=2.7)
    flat_law = np.full((1, 200), 0.4)
    said = combine_quantiles(
        stack, SUMMARY, np.array([20.0]), LEVELS[1:-1], flat_law, np.array([0.03])
    )[:, 0]
    simple = 2 * said - 0.4
    centre, up, down = sides_by_hand(stack, SUMMARY, methods_by_hand(SUMMARY, 20.0, 0.03), 0.0)
    assert up > 1.5 * down, "or the sides would not show"

    def density(value: float) -> float:
        side = up if value > centre else down
        return float(scipy.stats.t.pdf((value - centre) / side, 2.7)) * 2 / (up + down)

    for level, value in zip(LEVELS[1:-1].tolist(), simple.tolist(), strict=True):
        below = scipy.integrate.quad(density, -np.inf, min(value, centre))[0]
        above = scipy.integrate.quad(density, centre, value)[0] if value > centre else 0.0
        assert below + above == pytest.approx(level, abs=1e-6)


def test_combined_is_what_a_slow_loop_makes() -> None:
    rng = np.random.default_rng(0)
    compute = np.array([10.0, 15.0, 40.0, 500.0])
    readings = np.sort(rng.beta(4.0, 5.0, (4, 301)), axis=1)
    gains = np.array([0.0, 0.01, 0.05, 0.2])
    said = combine_quantiles(STACK, SUMMARY, compute, LEVELS, readings, gains)
    assert said.shape == (7, 4)
    for place in range(4):
        law = readings[place].tolist()
        width = law[round(0.95 * 300)] - law[round(0.05 * 300)]
        methods = methods_by_hand(SUMMARY, float(compute[place]), float(gains[place]))
        centre, up, down = sides_by_hand(STACK, SUMMARY, methods, width)
        below = down / (up + down)
        for row, level in enumerate(LEVELS.tolist()):
            if level < below:
                simple = centre + down * scipy.stats.t.ppf(0.5 * level / below, STACK.degrees)
            else:
                simple = centre + up * scipy.stats.t.ppf(
                    0.5 + 0.5 * (level - below) / (1 - below), STACK.degrees
                )
            expected = 0.5 * law[round(level * 300)] + 0.5 * simple
            assert said[row, place] == pytest.approx(min(max(expected, 0.0), 1.0), abs=1e-9)


UNIT = st.floats(0.0, 1.0)
SMALL = st.floats(-3.0, 3.0)


@settings(max_examples=25)
@given(
    st.tuples(UNIT, UNIT, UNIT, UNIT),
    st.tuples(SMALL, SMALL),
    st.floats(0.0, 0.3),
    st.tuples(SMALL, SMALL, SMALL),
    st.tuples(SMALL, SMALL),
    st.floats(1.01, 30.0),
    st.integers(0, 100),
)
def test_quantiles_ascend_and_are_pass_rates_whatever_was_learned(
    rates: tuple[float, float, float, float],
    slopes: tuple[float, float],
    coarse_error: float,
    scale: tuple[float, float, float],
    side: tuple[float, float],
    degrees: float,
    seed: int,
) -> None:
    summary = Summary(3.0, *rates, *slopes, coarse_error)
    stack = replace(
        STACK,
        scale=scale,
        side=side,
        degrees=degrees,
        weights=(2.0, -1.0, 0.0, 0.0, 0.0, 0.5, -0.5),
    )
    readings = np.sort(np.random.default_rng(seed).random((3, 64)), axis=1)
    said = combine_quantiles(
        stack, summary, np.array([3.0, 6.0, 300.0]), LEVELS, readings, np.array([0.0, 0.1, 0.5])
    )
    assert np.all(np.diff(said, axis=0) >= 0)
    assert np.all((said >= 0) & (said <= 1))


def test_the_readings_in_a_few_numbers_are_those_of_slow_loops() -> None:
    rng = np.random.default_rng(3)
    compute = np.sort(rng.uniform(1.0, 50.0, 47))
    readings = np.clip(0.3 + 0.1 * np.log(compute) + 0.03 * rng.standard_normal(47), 0.0, 1.0)
    found = Summary.from_curve(Curve.from_points(compute, readings))
    assert found.newest_compute == compute[-1]
    assert found.last == readings[-1]
    assert found.last_five == pytest.approx(sum(readings[-5:]) / 5)
    assert found.last_tenth == pytest.approx(sum(readings[-4:]) / 4)
    assert found.log_slope == pytest.approx(np.polyfit(np.log(compute), readings, 1)[0])
    assert found.late_log_slope == pytest.approx(
        np.polyfit(np.log(compute[-23:]), readings[-23:], 1)[0]
    )
    errors = {}
    for weight in (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0):
        level = readings[0]
        squares = 0.0
        for place in range(1, 47):
            if place >= 3:
                squares += (readings[place] - level) ** 2
            level += weight * (readings[place] - level)
        errors[squares] = level
    assert found.smoothed == pytest.approx(errors[min(errors)])
    assert found.coarse_error == 0.0


def coarse_run(num_samples: int) -> Curve:
    answers = np.random.default_rng(1).binomial(num_samples, 0.6, 60)
    return Curve.from_points(np.arange(1.0, 61.0, dtype=np.float64), answers / num_samples)


@pytest.mark.parametrize("num_samples", [4, 8, 30])
def test_readings_of_a_few_answers_have_a_band_of_the_binomial_error_at_least(
    num_samples: int,
) -> None:
    forecast = fit(coarse_run(num_samples))
    rate = (forecast.summary.smoothed * num_samples + 0.5) / (num_samples + 1)
    error = math.sqrt(rate * (1 - rate) / (3 * num_samples))
    assert forecast.summary.coarse_error == pytest.approx(error)
    low, median, high = forecast.predictive([61.0, 120.0])
    assert np.all(median - low >= 1.6448 * error - 1e-9)
    assert np.all(high - median >= np.minimum(1.6448 * error, 1.0 - median) - 1e-9)


def test_one_answer_short_of_all_is_not_certain_and_many_answers_are_not_coarse() -> None:
    ones = np.ones(40)
    ones[[3, 11]] = 0.875
    low, _, high = fit(Curve.from_points(np.arange(1.0, 41.0, dtype=np.float64), ones)).predictive(
        [60.0]
    )[:, 0]
    assert high - low > 0.05, "a band narrower than half a step of 1/8 was once given"
    assert Summary.from_curve(coarse_run(1319)).coarse_error == 0.0
    assert (
        Summary.from_curve(
            Curve.from_points(
                np.arange(1.0, 11.0, dtype=np.float64), np.linspace(0.1, 0.7, 10) ** 1.1
            )
        ).coarse_error
        == 0.0
    )


def test_the_law_alone_answers_without_a_stack_and_for_what_was_already_read() -> None:
    compute = np.linspace(0.2, 6.0, 30)
    noisy = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + 0.01 * np.random.default_rng(0).standard_normal(
        30
    )
    curve = Curve.from_points(compute, noisy)
    stacked = fit(curve)
    alone = replace(stacked, options=FitOptions(prior=replace(DEFAULT_PRIOR, stack=None)))
    past = compute[:-1]
    assert np.array_equal(stacked.predictive(past), alone.predictive(past))
    assert not np.allclose(
        stacked.predictive([6.0, 12.0]), alone.predictive([6.0, 12.0]), atol=1e-4
    )
    readings, _ = alone.law_readings(np.array([12.0]))
    counted = [
        sorted(readings[0].tolist())[round(q * (readings.size - 1))] for q in (0.05, 0.5, 0.95)
    ]
    assert alone.predictive([12.0])[:, 0].tolist() == counted
    assert LAW_PRIOR.stack is None


@pytest.mark.parametrize("seed", range(3))
def test_a_ceiling_below_the_level_now_is_never_printed(seed: int) -> None:
    """A quick start that seems to end at 0.51; the newest five readings are above that."""
    rng = np.random.default_rng(seed)
    start = 0.512 - 0.19 * np.exp(-np.arange(15) / 1.6)
    readings = np.r_[start, np.full(5, 0.53)] + 0.003 * rng.standard_normal(20)
    forecast = fit(Curve.from_points(np.arange(1.0, 21.0, dtype=np.float64), readings))
    level = float(readings[-5:].mean())
    unbounded = np.quantile(forecast.law_values(forecast.draws.asymptote), 0.05)
    assert unbounded < level - 0.002, "or the bound would not show"
    assert np.all(forecast.asymptote((0.01, 0.05, 0.5, 0.95)) >= level)
    assert np.all(forecast.headroom((0.01, 0.05, 0.5, 0.95)) >= 0.0)
