"""Noise is not forecastable, and a rise out of it is: odds against sums written out, their limit by
simulation.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rollcast.curves.answer import law_of_curve
from rollcast.scaling.decisions import trend
from rollcast.scaling.decisions.advice import advise
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.trend import has_trend, trend_log_odds
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from testkit.forecast.noisy_series import Cell, flat_series, rising_series

DECIDED = (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)
CELLS = [
    Cell(count, noise, correlation)
    for count, noise in ((6, 0.03), (9, 0.015), (16, 0.05), (30, 0.03), (60, 0.015))
    for correlation in (0.0, 0.5)
]


def curve_of(readings: Array) -> Curve:
    return Curve.from_points(
        np.arange(1.0, readings.size + 1.0, dtype=np.float64), readings, unit="steps"
    )


def odds_by_integration(readings: Array, correlation: float, rise: Array) -> float:
    """The law's evidence over the constant's, up to a factor that is the same for all readings."""
    count = readings.size
    covariance = correlation ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    precision = np.linalg.inv(covariance)
    one = np.ones(count)
    shape = rise - one * (one @ precision @ rise) / (one @ precision @ one)
    shape = shape / np.sqrt(
        shape @ precision @ shape
    )  # a unit of it is one standard error, in units of the noise
    log_scale = np.log(readings.std()) + np.linspace(-2.5, 3.5, 80)[:, None, None]
    level = np.linspace(-10.0, 10.0, 80)[:, None]
    amount = np.linspace(0.0, 30.0, 300) + 0.05

    def evidence(amount: Array) -> float:
        """Sum of the normal density over a grid of ln s, of the level and of the amount, the last
        two in units of s.
        """
        scale = np.exp(log_scale)
        parts = [
            (rate - readings.mean()) / scale - level - amount * place
            for rate, place in zip(readings, shape, strict=True)
        ]
        squares = sum(
            precision[i, j] * parts[i] * parts[j] for i in range(count) for j in range(count)
        )
        return float(np.sum(np.exp(-0.5 * squares) * scale ** (1 - count)))

    return evidence(amount) / evidence(np.zeros(1))


def test_the_odds_are_those_of_the_integrals(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one noise and one rise; the factor of the flat prior is that of the first series."""
    monkeypatch.setattr(trend, "TREND_NOISE_CORRELATIONS", (0.5,))
    monkeypatch.setattr(trend, "TREND_EXPONENTS", (2.5,))
    monkeypatch.setattr(trend, "TREND_MIDPOINTS", (0.45,))
    rise = sigmoid(np.arange(1.0, 6.0), 0.0, 1.0, 2.5, 0.45 * 5)
    series = [
        np.array(values)
        for values in ([0.3, 0.33, 0.31, 0.3301, 0.36], [0.41, 0.4, 0.38, 0.4001, 0.37])
    ]
    found = [trend_log_odds(curve_of(values)) for values in series]
    wanted = [np.log(odds_by_integration(values, 0.5, rise)) for values in series]
    assert found[0] - found[1] == pytest.approx(wanted[0] - wanted[1], abs=0.01)


def test_level_and_scale_of_the_readings_do_not_matter() -> None:
    readings = 0.4 + 0.02 * np.random.default_rng(0).standard_normal(20) + 0.002 * np.arange(20)
    odds = trend_log_odds(curve_of(readings))
    assert trend_log_odds(curve_of(0.1 + 0.5 * readings)) == pytest.approx(odds, abs=1e-6)
    errors = np.full(20, 0.013)
    assert trend_log_odds(replace(curve_of(readings), standard_error=errors)) == pytest.approx(
        odds, abs=1e-6
    )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_one_flat_series_in_twenty_passes_the_limit_and_every_rise_does(cell: Cell) -> None:
    """Of 400 flat ones four standard errors more than 5 % are allowed."""
    rng = np.random.default_rng(0)
    assert np.mean([has_trend(flat_series(cell, rng)) for _ in range(400)]) < 0.05 + 4 * np.sqrt(
        0.05 * 0.95 / 400
    )
    assert np.mean([has_trend(rising_series(cell, rng)) for _ in range(100)]) > 0.9


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_noise_gets_no_ceiling_unless_it_is_saturated(cell: Cell) -> None:
    rng = np.random.default_rng(2)
    for _ in range(3):
        curve = flat_series(cell, rng)
        forecast = fit(curve)
        if has_trend(curve) or forecast.verdict.kind is VerdictKind.SATURATED:
            continue
        assert forecast.verdict.kind is not VerdictKind.FORECASTABLE
        assert law_of_curve(forecast) is None
        if forecast.verdict.kind is VerdictKind.TOO_EARLY:
            assert "No trend yet: the odds of a rise" in forecast.verdict.reason
            assert "gains end with" not in forecast.verdict.reason
            assert "The readings show no trend, so this rests on" in advise(forecast).reason


def test_a_rise_of_eight_standard_deviations_is_decided() -> None:
    rng = np.random.default_rng(1)
    kinds = [fit(rising_series(cell, rng)).verdict.kind for cell in CELLS for _ in range(4)]
    assert sum(kind in DECIDED for kind in kinds) >= 0.8 * len(kinds)


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_readings_that_hardly_move_show_no_trend(noise: float) -> None:
    assert not has_trend(
        curve_of(np.full(12, 0.3) + noise * np.random.default_rng(0).standard_normal(12))
    )


def test_one_lucky_answer_at_the_end_is_no_trend() -> None:
    """Readings of 30 answers: a step of a thirtieth is all that can be read."""
    assert not has_trend(curve_of(np.append(np.zeros(9), 1.0 / 30.0)))
    assert has_trend(curve_of(np.array([0, 0, 0, 1, 2, 4, 5, 7, 8, 10]) / 30.0))


def test_a_measured_start_counts_and_a_fall_does_not() -> None:
    flat = 0.5 + 0.01 * np.random.default_rng(3).standard_normal(12)
    assert not has_trend(curve_of(flat))
    assert has_trend(replace(curve_of(flat), initial=0.2))
    assert not has_trend(
        curve_of(np.linspace(0.6, 0.3, 20) + 0.01 * np.random.default_rng(4).standard_normal(20))
    )


def test_a_long_run_is_compared_in_blocks() -> None:
    steps = np.arange(1.0, 20_001.0)
    noise = 0.1 * np.random.default_rng(5).standard_normal(steps.size)
    assert has_trend(curve_of(np.clip(sigmoid(steps, 0.3, 0.4, 2.0, 8_000.0) + noise, 0, 1)))
    assert not has_trend(curve_of(np.clip(0.3 + noise, 0, 1)))
