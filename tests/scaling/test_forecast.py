from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior
from tests.scaling.calibration import WITHOUT_DRIFT, headrooms_of_drifting_runs


def forecast_of(stop: float, noise: float = 0.01) -> Forecast:
    compute = np.linspace(stop / 40, stop, 40)
    pass_rate = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + noise * np.random.default_rng(
        0
    ).standard_normal(40)
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
    assert mean == pytest.approx(
        float(sigmoid(6, 0.2, 0.7, 1.7, 1) - sigmoid(3, 0.2, 0.7, 1.7, 1)), abs=0.02
    )
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
    """On runs with drift its interval holds the truth at its rate; a fit that knows no drift is too
    sure.
    """
    held, width = headrooms_of_drifting_runs(16, DEFAULT_PRIOR)
    held_blind, width_blind = headrooms_of_drifting_runs(16, WITHOUT_DRIFT)
    assert held >= 0.8
    assert held_blind <= held
    assert width_blind < 0.9 * width


def test_a_reading_strays_as_a_full_covariance_says_and_the_start_strays_apart() -> None:
    """The law and the noise are pinned by the prior, so that a Gaussian process is left:
    conditioned by hand.
    """
    noise, rho, length = 0.02, 1.5, 0.2
    compute = np.linspace(1.0, 12.0, 12)
    law = sigmoid(compute, 0.2, 0.7, 1.7, 4.0)
    off = 0.05 * np.sin(compute)  # slow: most of it must be drift
    curve = Curve.from_points(np.r_[0.0, compute], np.r_[0.35, law + off], np.full(13, 0.01))
    whole = (float(np.log(noise / 0.01)), 1e-5)
    prior = replace(
        DEFAULT_PRIOR,
        initial=(0.2, 1e-5),
        asymptote=(0.7, 1e-5),
        log_exponent=(float(np.log(1.7)), 1e-5),
        log_midpoint=(0.0, 1e-5),
        midpoint_reference=4.0,
        log_error_scale=whole,
        log_drifting_error_scale=whole,
        drift=(rho,),
        error_drift_weight=(1.0,),
        drift_length=length,
        tail_weight=0.0,
        turn_rate=0.0,
        stack=None,
    )
    forecast = fit(curve, FitOptions(prior=prior, exclude_before=0.0, robust=False))
    assert forecast.observations.log_compute.size == 13, "nothing was merged"
    at = np.array([0.3, 5.5, 12.5, 20.0])
    low, median, high = forecast.predictive(at, standard_error=0.0)

    def covariance(a: Array, b: Array) -> Array:
        return np.asarray(
            noise**2 * rho**2 / (1 + rho**2) * np.exp(-np.abs(a[:, None] - b) / (length * 12.0))
        )

    # The start, 0.15 off the law, is nowhere in here.
    seen = covariance(compute, compute) + noise**2 / (1 + rho**2) * np.eye(12)
    gain = covariance(at, compute) @ np.linalg.inv(seen)
    spread = np.sqrt(np.diag(covariance(at, at) - gain @ covariance(compute, at)))
    assert median == pytest.approx(sigmoid(at, 0.2, 0.7, 1.7, 4.0) + gain @ off, abs=2e-3)
    assert 0.5 * (high - low) == pytest.approx(1.645 * spread, rel=0.1)


def test_a_first_phase_that_is_over_within_a_few_points_bends_nothing() -> None:
    """It ends at a fiftieth of the window, 0.15 below the law at its start:
    the truth is the law.
    """
    compute = np.linspace(0.1, 10.0, 100)
    law, truth = sigmoid(compute, 0.3, 0.7, 1.7, 3.0), float(sigmoid(20.0, 0.3, 0.7, 1.7, 3.0))
    clean = np.r_[0.15, law - 0.15 * np.maximum(1.0 - compute / 0.2, 0.0)]

    def error(prior: Prior) -> float:
        errors = []
        for seed in range(6):
            noisy = clean + 0.006 * np.random.default_rng(seed).standard_normal(101)
            curve = Curve.from_points(np.r_[0.0, compute], noisy, np.full(101, 0.006))
            errors.append(abs(fit(curve, FitOptions(prior=prior)).pass_rate([20.0])[1, 0] - truth))
        return float(np.mean(errors))

    assert error(LAW_PRIOR) < 0.006
    late = tuple(share for share in LAW_PRIOR.start_transient if share >= 0.05)
    assert error(replace(LAW_PRIOR, start_transient=late)) > 0.02, (
        "short candidates are what tells it"
    )


def test_after_any_compute_a_draw_with_a_tail_has_a_pass_rate() -> None:
    compute = np.linspace(1.0, 30.0, 30)
    noise = 0.02 * np.random.default_rng(0).standard_normal(30)
    forecast = fit(Curve.from_points(compute, sigmoid(compute, 0.2, 0.7, 1.7, 8.0) + noise))
    draws = forecast.draws
    assert 0 < np.mean(draws.tail == 0.0) < 1
    ever = draws.law([np.inf])[0]
    assert np.all(np.isin(ever[draws.tail != 0.0], (0.0, 1.0)))
    assert ever[draws.tail == 0.0] == pytest.approx(draws.asymptote[draws.tail == 0.0])


def test_a_drift_that_a_prior_rules_out_has_no_part() -> None:
    compute = np.linspace(1.0, 30.0, 30)
    pass_rate = sigmoid(compute, 0.2, 0.7, 1.7, 8.0) + 0.01 * np.random.default_rng(
        0
    ).standard_normal(30)
    curve = Curve.from_points(compute, pass_rate)
    for weight in ((1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0)):
        draws = fit(curve, FitOptions(prior=replace(DEFAULT_PRIOR, drift_weight=weight))).draws
        allowed = np.array(DEFAULT_PRIOR.drift)[np.array(weight) > 0]
        assert np.all(np.isin(draws.drift, allowed))
