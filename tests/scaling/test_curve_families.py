"""The baseline of weighted families: it finds curves of its own families again, and says how little
it knows.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rollcast.scaling.law.curve import Array, Curve
from testkit.forecast.curve_families import curve_families

STEPS = np.linspace(1.0, 30.0, 30)
TRUTHS = {
    "pow3": lambda x: 0.7 - 0.5 * x**-0.6,
    "MMF": lambda x: 0.7 - 0.6 / (1 + (0.15 * x) ** 1.4),
    "Weibull": lambda x: 0.65 - 0.5 * math.exp(-((0.08 * x) ** 1.2)),
    "log log linear": lambda x: math.log(0.25 * math.log(x + 1) + 1.1),
}


@pytest.mark.parametrize("name", TRUTHS)
def test_a_curve_of_one_of_the_families_is_extrapolated(name: str) -> None:
    truth = [TRUTHS[name](x) for x in (*STEPS, 60.0)]
    noisy: Array = np.array(truth[:-1]) + 0.003 * np.random.default_rng(0).standard_normal(
        STEPS.size
    )
    found = curve_families(Curve.from_points(7.0 * STEPS, noisy))
    low, median, high = found.quantiles([7.0 * 60], (0.05, 0.5, 0.95))[:, 0]
    assert median == pytest.approx(truth[-1], abs=0.02)
    assert low <= truth[-1] <= high
    assert high - low < 0.15


def test_a_mean_of_few_readings_is_known_less_well_and_early_curves_least() -> None:
    noisy: Array = np.array([TRUTHS["MMF"](x) for x in STEPS]) + 0.02 * np.random.default_rng(
        1
    ).standard_normal(STEPS.size)
    width = {}
    for count in (8, 30):
        found = curve_families(Curve.from_points(STEPS[:count], noisy[:count]))
        for readings in (1.0, math.inf):
            low, high = found.quantiles([60.0], (0.05, 0.95), readings)[:, 0]
            assert 0 <= low <= high <= 1
            width[count, readings] = high - low
    assert width[30, 1.0] > width[30, math.inf]
    assert width[8, math.inf] > width[30, math.inf]
