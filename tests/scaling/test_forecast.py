from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollcast.scaling.curve import Curve, sigmoid
from rollcast.scaling.forecast import Forecast
from rollcast.scaling.options import FitOptions
from rollcast.scaling.posterior import fit
from rollcast.scaling.prior import DEFAULT_PRIOR, LAW_PRIOR
from testkit.forecast.generators import simulate


def forecast_of(stop: float, noise: float = 0.01) -> Forecast:
    compute = np.linspace(stop / 40, stop, 40)
    pass_rate = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + noise * np.random.default_rng(0).standard_normal(40)
    return fit(Curve.from_points(compute, pass_rate), FitOptions(prior=LAW_PRIOR))


def test_compute_to_target_inverts_the_law_draw_by_draw() -> None:
    forecast = forecast_of(3.0)
    draws = forecast.draws
    target = 0.6
    reached = [
        float(mid * ((target - low) / (high - target)) ** (1 / slope)) if high > target else np.inf
        for low, high, slope, mid in zip(
            draws.initial, draws.asymptote, draws.exponent, np.exp(draws.log_midpoint), strict=True
        )
    ]
    assert forecast.compute_to_target(target)[1] == pytest.approx(np.median(reached), rel=0.01)
    assert forecast.compute_to_target(0.999)[1] == np.inf
    assert forecast.compute_to_target(0.0)[1] == 0
    with pytest.raises(ValueError, match="no pass rate"):
        forecast.compute_to_target(60)


def test_gain_and_headroom_are_differences_of_the_law() -> None:
    forecast = forecast_of(3.0)
    mean, low, high = forecast.expected_gain(3.0, 6.0)
    assert low < mean < high
    assert mean == pytest.approx(float(sigmoid(6, 0.2, 0.7, 1.7, 1) - sigmoid(3, 0.2, 0.7, 1.7, 1)), abs=0.02)
    low, median, high = forecast.headroom((0.01, 0.5, 0.99))
    assert low < 0.7 - float(sigmoid(3.0, 0.2, 0.7, 1.7, 1.0)) < high
    assert median == pytest.approx(forecast.expected_gain(3.0, 1e9)[0], abs=0.01)


def test_a_reading_is_less_certain_than_the_law_and_noise_widens_it() -> None:
    forecast = forecast_of(3.0)
    law, own, rough = (
        np.ptp(q[:, 0])
        for q in (
            forecast.pass_rate([6.0]),
            forecast.predictive([6.0]),
            forecast.predictive([6.0], standard_error=0.05),
        )
    )
    assert law < own < rough


def test_intervals_narrow_as_the_curve_bends() -> None:
    widths = [np.ptp(forecast_of(stop).asymptote()) for stop in (0.3, 1.0, 3.0, 10.0)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 0.3
    assert widths[-1] < 0.05


def test_readings_pass_through_a_first_phase_that_the_law_does_not_describe() -> None:
    compute = np.linspace(0.05, 3.0, 60)
    early = 0.08 * np.maximum(1 - compute / 0.36, 0)
    noise = 0.003 * np.random.default_rng(2).standard_normal(60)
    points = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + early + noise
    forecast = fit(Curve.from_points(np.r_[0, compute], np.r_[0.28, points]))
    readings = forecast.predictive(compute[:8])
    assert np.mean((readings[0] <= points[:8]) & (points[:8] <= readings[2])) > 0.7
    assert np.all(readings[2] - readings[0] < 0.05)
    assert points[0] - forecast.pass_rate([compute[0]], [0.5])[0, 0] > 0.04


def test_headroom_is_as_open_as_readings_that_wander_together_leave_it() -> None:
    """On runs with drift its interval holds the truth at its rate; a fit that knows no drift is too sure."""
    rng = np.random.default_rng(0)
    runs = [simulate("heavy", 3.0, rng) for _ in range(100)]
    blind = FitOptions(prior=replace(DEFAULT_PRIOR, drift=(0.0,), drift_weight=(1.0,), error_drift_weight=(1.0,)))
    held, widths = {}, {}
    for name, options in (("default", None), ("blind", blind)):
        bounds = np.array([fit(run.curve, options).headroom((0.05, 0.95)) for run in runs])
        truth = np.array([run.truth.asymptote - run.truth.pass_rate([run.curve.compute[-1]])[0] for run in runs])
        held[name] = np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1]))
        widths[name] = np.mean(bounds[:, 1] - bounds[:, 0])
    assert 0.82 <= held["default"] <= 0.98
    assert held["blind"] < held["default"]
    assert widths["blind"] < 0.9 * widths["default"]
