"""What was once said of real runs and was wrong, on curves of the same kind that are made here."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rollcast.scaling.decisions.advice import AdviceKind, advise
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.decisions.forecast import Forecast
from rollcast.scaling.decisions.smoothing import window_sums
from rollcast.scaling.decisions.verdict import VerdictKind
from rollcast.scaling.law.curve import Curve

PROMPTS = 1319
"""Of the test set of GSM8K."""
DECISIONS = (VerdictKind.FORECASTABLE, VerdictKind.SATURATED)


def forecast_of(rates: list[float], seed: int | None, every: float = 10.0) -> Forecast:
    """Of readings at even steps, with the scatter of so many prompts;
    none where there is no seed.
    """
    rng = random.Random(f"once wrong {seed}")
    noisy = [
        min(
            max(
                rate
                + (0.0 if seed is None else rng.gauss(0.0, math.sqrt(rate * (1 - rate) / PROMPTS))),
                0.0,
            ),
            1.0,
        )
        for rate in rates
    ]
    return fit(
        Curve.from_points([every * (place + 1) for place in range(len(rates))], noisy, unit="steps")
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("midpoint", [90.0, 140.0])
def test_a_clean_steep_sigmoid_is_no_change_of_regime(seed: int, midpoint: float) -> None:
    """From 0.04 to 0.69 with B = 6.9, as a small base model learns GSM8K."""
    steps = [10.0 * (place + 1) for place in range(30)]
    forecast = forecast_of([0.04 + 0.65 / (1 + (midpoint / step) ** 6.9) for step in steps], seed)
    assert forecast.verdict.kind in DECISIONS, forecast.verdict.reason
    low, high = forecast.exponent((0.005, 0.995))
    assert low <= 6.9 <= high
    low, high = forecast.predictive([600.0], (0.005, 0.995))[:, 0]
    assert low <= 0.69 <= high


@pytest.mark.parametrize("seed", range(2))
def test_a_gain_above_the_median_ceiling_lies_in_the_band(seed: int) -> None:
    """A quick start that seems to end at 0.51; the last reading is 0.523, and the run ended at
    0.552.
    """
    start = [0.512 - 0.19 * math.exp(-place / 1.6) for place in range(11)]
    rng = random.Random(seed)
    readings = [rate + rng.gauss(0.0, 0.006) for rate in start]
    forecast = forecast_of([*readings, 0.523], seed=None)
    assert forecast.asymptote((0.5,))[0] < 0.55
    low, high = forecast.predictive([4 * 120.0], (0.05, 0.95))[:, 0]
    assert low <= 0.552 <= high


@pytest.mark.parametrize("seed", range(2))
def test_a_rise_after_a_flat_stretch_lies_in_the_band_and_has_a_chance(seed: int) -> None:
    """A quarter of a run: up to 0.87, where it stays for a while; it ended at 0.937."""
    rates = [0.875 - 0.16 * math.exp(-place / 2.5) for place in range(16)]
    forecast = forecast_of(rates, seed)
    chance = advise(forecast, 4 * 160.0, worth=0.03).chance
    assert chance is not None
    assert chance > 0.1
    low, high = forecast.predictive([4 * 160.0], (0.05, 0.95))[:, 0]
    assert low <= 0.937 <= high


def test_a_run_that_climbs_again_is_not_stopped_though_no_law_describes_it() -> None:
    """A rise, a fall and a rise again, as after a change of data."""
    rates = (
        [0.2 + 0.025 * place for place in range(12)]
        + [0.3] * 6
        + [0.3 + 0.04 * place for place in range(8)]
    )
    forecast = forecast_of(rates, 0)
    assert forecast.verdict.kind not in DECISIONS
    for worth in (0.0, 0.02, 0.05):
        assert advise(forecast, worth=worth).kind is AdviceKind.CONTINUE


class Counted(np.ndarray):
    """An array that counts the elements that are computed from it."""

    work = 0

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **options: object
    ) -> object:
        plain = [item.view(np.ndarray) if isinstance(item, Counted) else item for item in inputs]
        made = getattr(ufunc, method)(*plain, **options)
        Counted.work += made.size
        return made.view(Counted)


@pytest.mark.parametrize("count", [1_000, 100_000, 1_000_000])
def test_running_sums_of_a_long_curve_are_no_quadratic_work(count: int) -> None:
    """A convolution took a minute for a million rows; n log n additions are counted instead of
    seconds.
    """
    width = count // 10
    Counted.work = 0
    window_sums(np.zeros(count).view(Counted), width)
    assert count <= Counted.work <= 2 * count * math.ceil(math.log2(width + 1))
