from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve, sigmoid

finite = st.floats(0.01, 0.99)


@given(
    initial=finite,
    gain=finite,
    exponent=st.floats(0.1, 8),
    midpoint=st.floats(1e-3, 1e6),
    ratio=st.floats(0.01, 100),
)
def test_sigmoid_equals_equation_1(
    initial: float, gain: float, exponent: float, midpoint: float, ratio: float
) -> None:
    asymptote = initial + (1 - initial) * gain
    compute = ratio * midpoint
    expected = initial + (asymptote - initial) / (1 + (midpoint / compute) ** exponent)
    assert sigmoid(compute, initial, asymptote, exponent, midpoint) == pytest.approx(
        expected, rel=1e-9
    )
    assert sigmoid(midpoint, initial, asymptote, exponent, midpoint) == pytest.approx(
        (initial + asymptote) / 2
    )


def test_sigmoid_is_the_initial_rate_at_zero_and_the_asymptote_far_out() -> None:
    assert sigmoid(0.0, 0.2, 0.7, 1.5, 10.0) == pytest.approx(0.2)
    assert sigmoid(1e300, 0.2, 0.7, 5.0, 10.0) == pytest.approx(0.7)


def test_points_are_sorted_and_bad_ones_counted() -> None:
    curve = Curve.from_points(
        [3.0, 1.0, math.nan, 2.0, 0.0, 4.0],
        [0.3, 0.1, 0.5, math.inf, 0.05, 0.4],
        [0.01, 0.02, 0.03, 0.04, 0.05, 0.0],
    )
    assert curve.compute.tolist() == [1.0, 3.0, 4.0]
    assert curve.pass_rate.tolist() == [0.1, 0.3, 0.4]
    assert curve.dropped == 2
    assert curve.initial == pytest.approx(0.05)
    assert curve.initial_standard_error == pytest.approx(0.05)
    assert curve.standard_error is not None
    assert curve.standard_error.tolist() == [0.02, 0.01, 0.015]


@pytest.mark.parametrize(
    ("compute", "pass_rate", "message"),
    [
        ([1.0, 2.0], [0.5], "2 compute values but 1 pass rates"),
        ([0.0], [0.5], "no finite point"),
        ([], [], "no finite point"),
        ([-1.0], [0.5], "negative"),
        ([1.0], [54.0], "divide percentages"),
        ([1e-300, 1e300], [0.1, 0.2], "check the unit"),
    ],
)
def test_a_bad_curve_is_refused_in_one_sentence(
    compute: list[float], pass_rate: list[float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Curve.from_points(compute, pass_rate)


def test_a_window_keeps_the_measured_start_and_refuses_to_be_empty() -> None:
    curve = Curve.from_points([0, 1, 2, 3], [0.1, 0.2, 0.3, 0.4], [0.01] * 4)
    part = curve.window(1.5)
    assert part.compute.tolist() == [2, 3]
    assert part.initial == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no point between"):
        curve.window(10.0)


@pytest.mark.parametrize("error", [5e-324, 1e-300, 1e-160, 1e-9, 1.0, 1e100, 1e160, 1e300])
@pytest.mark.parametrize("where", ["everywhere", "at one point", "at the start"])
def test_no_standard_error_is_too_small_or_too_large_for_a_fit(error: float, where: str) -> None:
    compute = np.linspace(0.0, 5.0, 21)
    noise = 0.005 * np.random.default_rng(0).standard_normal(21)
    pass_rate = sigmoid(compute, 0.2, 0.7, 1.7, 1.0) + noise
    errors = np.full(21, error if where == "everywhere" else 0.01)
    if where != "everywhere":
        errors[10 if where == "at one point" else 0] = error
    forecast = fit(Curve.from_points(compute, pass_rate, errors))
    answers = np.concatenate(
        [forecast.asymptote(), forecast.exponent(), forecast.predictive([10.0])[:, 0]]
    )
    assert np.all(np.isfinite(answers))
    low, _, high = forecast.asymptote()
    assert low - 0.03 < 0.7 < high + 0.03


def test_a_standard_error_above_1_is_none_of_a_pass_rate() -> None:
    curve = Curve.from_points([0.0, 1.0, 2.0, 3.0], [0.1, 0.2, 0.3, 0.4], [1e200, 0.02, 1.5, 0.04])
    assert curve.standard_error is not None
    assert curve.standard_error.tolist() == pytest.approx([0.02, 0.03, 0.04])
    assert curve.initial_standard_error is None
    assert (
        Curve.from_points(
            [1.0], [0.5], initial=0.1, initial_standard_error=1e200
        ).initial_standard_error
        is None
    )
