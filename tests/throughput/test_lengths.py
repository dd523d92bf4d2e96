"""Closed forms of cut lognormal lengths, compared with samples that the simulation draws."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from rollcast.simulation.workload import lognormal_with_mean
from rollcast.throughput.lengths import lengths_with_mean

SAMPLES = 40_000
GROUP = 16


@pytest.mark.parametrize(
    ("mean", "spread", "budget"), [(4_300, 0.8, 14_336), (400, 0.8, 512), (1_000, 0.3, 100_000)]
)
def test_the_moments_are_those_of_the_simulated_lengths(
    mean: float, spread: float, budget: float
) -> None:
    draw = lognormal_with_mean(mean, spread, budget)
    rng = random.Random(0)
    drawn = [draw(rng) for _ in range(SAMPLES)]
    lengths = lengths_with_mean(mean, spread, budget)
    assert lengths.mean == pytest.approx(mean, rel=1e-6)
    assert lengths.moment(2) == pytest.approx(fmean(x**2 for x in drawn), rel=0.03)
    assert lengths.cut_share == pytest.approx(fmean(x >= budget for x in drawn), abs=0.01)
    longest = [max(drawn[first : first + GROUP]) for first in range(0, SAMPLES, GROUP)]
    assert lengths.mean_of_longest(GROUP) == pytest.approx(fmean(longest), rel=0.03)


def test_the_tokens_of_a_running_rollout_are_those_of_a_look_at_a_random_moment() -> None:
    """A long rollout is met more often than a short one, on average at its half."""
    draw = lognormal_with_mean(1_000, 0.8, 4_000)
    rng = random.Random(1)
    drawn = [draw(rng) for _ in range(SAMPLES)]
    seen = [rng.random() * length for length in rng.choices(drawn, weights=drawn, k=SAMPLES)]
    lengths = lengths_with_mean(1_000, 0.8, 4_000)
    assert lengths.mean_position == pytest.approx(fmean(seen), rel=0.03)
    mean = fmean(seen)
    assert lengths.variance_of_running == pytest.approx(
        fmean((x - mean) ** 2 for x in seen), rel=0.05
    )
