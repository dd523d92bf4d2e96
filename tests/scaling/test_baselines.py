"""Baselines against SciPy's general least squares and the settings that made the points."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import curve_fit

from rollcast.scaling.law.baselines import paper_grid, power_law
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from testkit.forecast.last_value import last_value
from testkit.forecast.log_linear import log_linear


def simulated(noise: float = 0.01) -> Curve:
    compute = np.linspace(500, 30_000, 60)
    pass_rate = sigmoid(compute, 0.0, 0.8, 1.5, 5_000) * (
        1 + noise * np.random.default_rng(0).standard_normal(60)
    )
    return Curve.from_points(compute, pass_rate)


def test_log_linear_has_the_right_sign_and_extrapolates() -> None:
    found = log_linear(simulated())
    assert found.slope < 0
    assert found.asymptote == pytest.approx(0.8, abs=0.05)
    assert found.pass_rate(100_000.0) == pytest.approx(
        float(sigmoid(100_000.0, 0.0, 0.8, 1.5, 5_000)), abs=0.02
    )
    compute = np.array([700.0, 9_000.0])
    expected = found.asymptote / (1 + np.exp(found.intercept + found.slope * np.log(compute)))
    assert found.pass_rate(compute) == pytest.approx(expected)


def test_power_law_is_the_least_squares_one() -> None:
    compute = np.linspace(1, 20, 40)
    noisy = 0.7 - 0.3 * compute**-0.8 + 0.003 * np.random.default_rng(1).standard_normal(40)
    found = power_law(Curve.from_points(compute, noisy))
    expected, _ = curve_fit(lambda c, a, d, b: a - d * c**-b, compute, noisy, p0=(0.7, 0.3, 0.8))
    assert (found.asymptote, found.scale, found.exponent) == pytest.approx(
        tuple(expected), rel=0.02
    )


def test_power_law_stops_at_a_pass_rate_of_one() -> None:
    compute = np.linspace(1, 20, 40)
    assert power_law(Curve.from_points(compute, 0.04 * compute)).asymptote <= 1.0


def law(compute: Array, exponent: float, *, asymptote: float, midpoint: float) -> Array:
    return sigmoid(compute, 0.4, asymptote, exponent, midpoint)


def test_paper_grid_is_its_grid_with_curve_fit_at_every_node() -> None:
    rng = np.random.default_rng(2)
    compute = np.linspace(1_500, 8_000, 25)
    curve = Curve.from_points(
        compute, sigmoid(compute, 0.4, 0.61, 1.92, 2_542) + 0.003 * rng.standard_normal(25)
    )
    asymptotes, midpoints = np.linspace(0.58, 0.64, 5), np.linspace(2_000, 3_500, 6)
    found = paper_grid(curve, 0.4, asymptotes, midpoints)
    best, cost = None, np.inf
    for asymptote in asymptotes:
        for midpoint in midpoints:
            (exponent,), _ = curve_fit(
                partial(law, asymptote=asymptote, midpoint=midpoint), compute, curve.pass_rate
            )
            total = np.sum(
                (curve.pass_rate - sigmoid(compute, 0.4, asymptote, exponent, midpoint)) ** 2
            )
            if total < cost:
                best, cost = (asymptote, exponent, midpoint), total
    assert best is not None
    assert (found.asymptote, found.exponent, found.midpoint) == pytest.approx(best, rel=1e-4)


def test_last_value_repeats_the_last_point() -> None:
    curve = simulated()
    assert last_value(curve).pass_rate([1e5, 1e6]).tolist() == [curve.pass_rate[-1]] * 2
