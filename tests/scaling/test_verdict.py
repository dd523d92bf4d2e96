from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.decisions.digits import difference
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.smoothing import window_sums
from rollcast.scaling.decisions.verdict import Verdict, VerdictKind
from rollcast.scaling.law.curve import Array, Curve, sigmoid
from rollcast.scaling.posterior.options import FitOptions
from rollcast.scaling.posterior.prior import DEFAULT_PRIOR, LAW_PRIOR, Prior
from testkit.forecast.generators import GENERATORS
from tests.scaling.calibration import later_missed, num_first_phases_accused, num_good_runs_accused

COMPUTE = np.linspace(0.1, 6.0, 60)
LAW = sigmoid(COMPUTE, 0.2, 0.7, 1.7, 1.0)


def verdict_of(
    pass_rate: Array, compute: Array = COMPUTE, noise: float = 0.01, prior: Prior = DEFAULT_PRIOR
) -> Verdict:
    noisy = pass_rate + noise * np.random.default_rng(0).standard_normal(pass_rate.size)
    return fit(Curve.from_points(compute, noisy.clip(0, 1)), FitOptions(prior=prior)).verdict


@pytest.mark.parametrize(
    ("pass_rate", "kind"),
    [
        (LAW, VerdictKind.FORECASTABLE),
        (np.where(COMPUTE < 4, LAW, 0.3), VerdictKind.BROKEN),
        (LAW - 0.06 * np.maximum(COMPUTE - 3, 0), VerdictKind.BROKEN),
        (np.where(COMPUTE < 3, LAW, LAW + 0.15), VerdictKind.REGIME_CHANGE),
    ],
)
def test_shape_of_the_whole_curve(pass_rate: Array, kind: VerdictKind) -> None:
    verdict = verdict_of(pass_rate)
    assert verdict.kind is kind
    assert verdict.reason.endswith((".", ")."))


@pytest.mark.parametrize(("first", "last"), [(0.2, 0.8), (0.3, 0.9), (0.0, 0.4)])
@pytest.mark.parametrize("num_points", [40, 100])
def test_a_straight_line_without_noise_has_no_place_of_a_change(
    first: float, last: float, num_points: int
) -> None:
    compute = np.linspace(10, 400, num_points)
    forecast = fit(Curve.from_points(compute, first + (last - first) * compute / 400))
    assert forecast.verdict.kind is VerdictKind.FORECASTABLE
    assert forecast.predictive([800.0], (0.05,))[0, 0] > last


@pytest.mark.parametrize("prior", [DEFAULT_PRIOR, LAW_PRIOR], ids=["default", "the law alone"])
@pytest.mark.parametrize("top", [0.3, 0.7, 1.0])
def test_a_long_flat_top_is_saturated(top: float, prior: Prior) -> None:
    compute = np.linspace(0.5, 60, 80)
    assert (
        verdict_of(sigmoid(compute, 0.1, top, 1.9, 1.0), compute, 0.005, prior).kind
        is VerdictKind.SATURATED
    )


@pytest.mark.parametrize(
    ("noise", "kind"), [(0.005, VerdictKind.FORECASTABLE), (0.1, VerdictKind.TOO_EARLY)]
)
def test_a_start_is_forecastable_if_its_readings_at_twice_the_compute_are_known(
    noise: float, kind: VerdictKind
) -> None:
    """Until 0.4 C_mid: the reason says that A is not known yet."""
    short = np.linspace(0.02, 0.4, 20)
    noisy = sigmoid(short, 0.2, 0.7, 1.7, 1.0) + noise * np.random.default_rng(0).standard_normal(
        20
    )
    forecast = fit(Curve.from_points(short, noisy.clip(0, 1)))
    low, high = forecast.predictive([0.8], (0.05, 0.95))[:, 0]
    assert forecast.verdict.kind is kind
    assert bool(high - low > 0.3) is (kind is VerdictKind.TOO_EARLY)
    assert low < sigmoid(0.8, 0.2, 0.7, 1.7, 1.0) < high
    assert ("so A rests mostly on the prior" in forecast.verdict.reason) is (
        kind is VerdictKind.FORECASTABLE
    )


def test_saturated_means_that_the_level_now_is_seldom_passed_by_much() -> None:
    """The chance of a gain of 0.03 until twice the compute, counted in 4,000 quantiles, on both
    sides of the limit.
    """
    for stop, kind in ((3.0, VerdictKind.FORECASTABLE), (30.0, VerdictKind.SATURATED)):
        compute = np.linspace(stop / 60, stop, 60)
        noisy = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + 0.005 * np.random.default_rng(
            1
        ).standard_normal(60)
        forecast = fit(Curve.from_points(compute, noisy))
        later = forecast.predictive([2 * stop], (np.arange(4000) + 0.5) / 4000)[:, 0]
        chance = (
            sum(reading >= forecast.summary.smoothed + 0.03 for reading in later.tolist()) / 4000
        )
        assert forecast.verdict.kind is kind
        assert bool(chance < 0.1) is (kind is VerdictKind.SATURATED)
        stated = float(forecast.verdict.reason.split("has a chance of ")[1].split("%")[0]) / 100
        assert stated == pytest.approx(chance, abs=0.025)


def test_more_truncated_answers_are_a_regime_change_before_the_pass_rate_shows_it() -> None:
    truncation = np.where(COMPUTE < 5, 0.01, 0.25)
    noisy = LAW + 0.01 * np.random.default_rng(0).standard_normal(LAW.size)
    curve = Curve.from_points(COMPUTE, noisy, truncation_ratio=truncation)
    assert fit(curve).verdict.kind is VerdictKind.REGIME_CHANGE
    assert "25%" in fit(curve).verdict.reason
    assert fit(curve.window(stop=4.5)).verdict.kind is VerdictKind.FORECASTABLE


def test_good_runs_are_rarely_accused_of_a_break() -> None:
    assert num_good_runs_accused(12) == 0


@pytest.mark.parametrize("initial", [0.9, float(LAW[-1])])
def test_a_given_start_that_no_reading_lies_above_is_refused(initial: float) -> None:
    curve = Curve.from_points(COMPUTE, LAW, name="mine")
    with pytest.raises(
        ValueError,
        match=r"initial: 0\.\d+ is not below the highest reading of curve 'mine', 0\.6\d+,",
    ):
        fit(curve, FitOptions(initial=initial))
    assert fit(curve, FitOptions(initial=0.2)).asymptote((0.5,))[0] == pytest.approx(0.7, abs=0.02)


def test_a_run_that_only_fell_from_its_given_start_gets_its_verdict() -> None:
    falling = 0.6 - 0.05 * COMPUTE + 0.005 * np.random.default_rng(0).standard_normal(COMPUTE.size)
    verdict = fit(Curve.from_points(COMPUTE, falling), FitOptions(initial=0.65)).verdict
    assert verdict.kind is VerdictKind.BROKEN


@pytest.mark.parametrize("window", [1.0, 3.0])
@pytest.mark.parametrize("generator", GENERATORS)
def test_good_runs_are_mostly_forecastable_or_saturated_and_then_hold_what_comes(
    generator: str, window: float
) -> None:
    """Seen until their midpoint, and until three times that."""
    missed = later_missed(generator, window, num_runs=6)
    assert len(missed) >= 4
    assert sum(missed) <= 1


def test_a_bend_that_may_lie_ahead_is_named_by_the_reason() -> None:
    compute = np.linspace(0.028, 1.4, 50)
    verdict = verdict_of(sigmoid(compute, 0.2, 0.6, 1.7, 1.0), compute, 0.002)
    assert verdict.kind is VerdictKind.FORECASTABLE
    assert (
        "The bend is not clearly behind (1.5 C_mid is reached with a probability of"
        in verdict.reason
    )
    assert "so A rests mostly on the prior" in verdict.reason
    behind = verdict_of(LAW, noise=0.002)
    assert "The bend is not clearly behind" not in behind.reason


def test_a_run_that_solved_everything_from_the_start_is_saturated_though_it_has_no_bend() -> None:
    assert verdict_of(np.ones_like(COMPUTE), noise=0.0).kind is VerdictKind.SATURATED
    assert verdict_of(np.full_like(COMPUTE, 0.5), noise=0.004).kind is VerdictKind.NO_LEARNING


def test_a_first_phase_above_the_law_is_no_fall() -> None:
    assert num_first_phases_accused(12) <= 1


@pytest.mark.parametrize("initial", [None, 0.6])
def test_a_run_that_falls_deeply_and_early_is_told(initial: float | None) -> None:
    fallen = np.maximum(0.6 - 0.15 * COMPUTE, 0.3) + 0.005 * np.random.default_rng(
        0
    ).standard_normal(COMPUTE.size)
    assert (
        fit(Curve.from_points(COMPUTE, fallen, initial=initial)).verdict.kind is VerdictKind.BROKEN
    )


def test_what_follows_from_each_verdict() -> None:
    """The two properties that every surface asks, as one table."""
    table = {
        kind: (kind.is_described, kind.is_decidable)
        for kind in VerdictKind
        if kind.is_described or kind.is_decidable
    }
    assert table == {
        VerdictKind.TOO_EARLY: (True, False),
        VerdictKind.FORECASTABLE: (True, True),
        VerdictKind.SATURATED: (True, True),
        VerdictKind.NO_LEARNING: (False, True),
    }


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_below_five_evaluations_the_verdict_counts_them_and_the_start_is_not_one_of_them(
    count: int,
) -> None:
    alone = fit(Curve.from_points(COMPUTE[:count], LAW[:count])).verdict
    assert (alone.kind, alone.num_missing, alone.has_forecast) == (
        VerdictKind.TOO_FEW,
        5 - count,
        False,
    )
    assert alone.reason == f"{count} of the 5 evaluations that a forecast needs."
    started = fit(Curve.from_points(COMPUTE[:count], LAW[:count], initial=0.2)).verdict
    assert started.num_missing == 5 - count
    assert "The evaluation at step 0 is its start" in started.reason


def test_from_five_evaluations_on_there_is_a_forecast() -> None:
    assert fit(Curve.from_points(COMPUTE[:5], LAW[:5])).verdict.kind is not VerdictKind.TOO_FEW


@pytest.mark.parametrize(("count", "width"), [(5, 2), (6, 6), (33, 3), (100, 10), (5001, 500)])
def test_running_sums_are_those_of_a_convolution(count: int, width: int) -> None:
    values = np.random.default_rng(0).random(count)
    assert window_sums(values, width) == pytest.approx(
        np.convolve(values, np.ones(width), mode="valid"), rel=1e-12
    )
    assert np.ptp(window_sums(np.full(count, 0.523), width)) == 0, (
        "a flat top has no peak made of rounding"
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0213, "0.021"),
        (0.001, "0.001"),
        (0.00031, "0.0003"),
        (0.000012, "0.00001"),
        (-0.00042, "-0.0004"),
        (1e-9, "0"),
    ],
)
def test_what_is_left_is_told_with_a_digit_that_is_not_zero(value: float, told: str) -> None:
    assert difference(value) == told


def test_a_run_that_solves_everything_says_how_little_is_left() -> None:
    compute = np.geomspace(1.0, 1000.0, 200)
    verdict = fit(
        Curve.from_points(compute, np.minimum(sigmoid(compute, 0.3, 1.0, 2.5, 1.5), 0.99999))
    ).verdict
    assert verdict.kind is VerdictKind.SATURATED
    assert "At most 0.000 " not in verdict.reason
