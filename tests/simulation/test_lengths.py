"""Lengths from measured means, against sampled ones."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest

from rollcast.simulation.workload import fit_spread, lognormal_with_mean

NUM_GROUPS = 20_000


def sampled(sigma: float, median: float, budget: float, rollouts: int) -> tuple[float, float]:
    """Mean length and mean longest of a group, by drawing them."""
    rng = random.Random(1)
    groups = [
        [min(median * math.exp(rng.gauss(0, sigma)), budget) for _ in range(rollouts)]
        for _ in range(NUM_GROUPS)
    ]
    return fmean(length for group in groups for length in group), fmean(
        max(group) for group in groups
    )


@pytest.mark.parametrize("budget", [math.inf, 6000.0])
@pytest.mark.parametrize("rollouts", [2, 8])
@pytest.mark.parametrize("sigma", [0.3, 0.8])
def test_the_spread_is_found_again_from_the_two_means(
    sigma: float, rollouts: int, budget: float
) -> None:
    mean, longest = sampled(sigma, 2000.0, budget, rollouts)
    assert fit_spread(mean, longest, rollouts, budget) == pytest.approx(sigma, rel=0.05)
    lengths = lognormal_with_mean(mean, sigma, budget)
    rng = random.Random(2)
    drawn = [lengths(rng) for _ in range(50_000)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.02)
    assert max(drawn) <= budget


def test_without_a_spread_every_rollout_has_the_mean() -> None:
    rng = random.Random(0)
    assert (
        fit_spread(100.0, 100.0, 8)
        == fit_spread(100.0, 300.0, 1)
        == fit_spread(50.0, 60.0, 8, budget=50.0)
        == 0.0
    )
    assert {lognormal_with_mean(70.0, 0.0)(rng) for _ in range(5)} == {70.0}
    assert {lognormal_with_mean(90.0, 1.0, budget=80.0)(rng) for _ in range(5)} == {80.0}
