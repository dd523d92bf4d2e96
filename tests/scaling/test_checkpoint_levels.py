"""The level at a checkpoint against a slow exact computation, its chance against known truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from rollcast.scaling.decisions.checkpoint_levels import CheckpointLevels, checkpoint_levels
from rollcast.scaling.law.curve import Array, sigmoid

Readings = list[tuple[int, float, float | None]]


def readings_of(level: Array, noise: float, rng: np.random.Generator) -> Readings:
    return [
        (10 * number, float(np.clip(rate + noise * rng.standard_normal(), 0, 1)), noise)
        for number, rate in enumerate(level)
    ]


def exact(steps: list[int], readings: Readings) -> tuple[Array, Array]:
    """Mean and standard deviation at `steps`, by conditioning the joint normal distribution of all
    levels and readings for each setting of the noise and the drift, entry by entry.
    """
    at = [step + 1 for step, _, _ in readings] + [step + 1 for step in steps]
    place = [(step / max(at)) ** 0.5 for step in at]
    y = np.array([rate for _, rate, _ in readings])
    errors = [error for _, _, error in readings]
    weights, means, seconds = [], [], []
    rises = [
        [
            float(sigmoid(one**2, 0, 1, exponent, middle))
            for exponent in (1.0, 2.5, 6.0)
            for middle in (0.02, 0.04, 0.08, 0.15, 0.27, 0.45, 0.7, 1.0)
        ]
        for one in place
    ]
    for length in (0.02, 0.06, 0.2, 0.6):
        for size in (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2):
            prior = np.empty((len(at), len(at)))
            for i, one in enumerate(place):
                for j, other in enumerate(place):
                    far = 3**0.5 * abs(one - other) / length
                    drift = size**2 * (1 + far) * np.exp(-far)
                    prior[i, j] = 0.25 + 0.35**2 * np.dot(rises[i], rises[j]) / 24 + drift
            for distance in np.linspace(-4, 4, 13):
                scale = np.exp(-0.16 + 0.22 * distance)
                n = len(y)
                covariance = prior[:n, :n] + np.diag([(scale * error) ** 2 for error in errors])
                centred = y - y.mean()
                density = multivariate_normal.logpdf(centred, np.zeros(n), covariance)
                weights.append(density - 2.0 * np.log1p(distance**2 / 3))
                gain = np.linalg.solve(covariance, prior[:n, n:]).T
                mean = y.mean() + gain @ centred
                means.append(mean)
                seconds.append(np.diag(prior[n:, n:] - gain @ prior[:n, n:]) + mean**2)
    weight = np.exp(np.array(weights) - max(weights))
    weight /= weight.sum()
    mean = weight @ np.array(means)
    return mean, np.sqrt(weight @ np.array(seconds) - mean**2)


def test_levels_are_those_of_a_slow_exact_computation() -> None:
    rng = np.random.default_rng(1)
    level = sigmoid(np.arange(9) / 8, 0.2, 0.6, 2.0, 0.2) - np.clip(np.arange(9) - 6, 0, 3) * 0.03
    readings = readings_of(level, 0.02, rng)
    steps = [15, 40, 60, 80]
    levels = checkpoint_levels(steps, readings)
    mean, deviation = exact(steps, readings)
    assert levels.mean == pytest.approx(mean, abs=4 * deviation.max() / 64)
    assert levels.draws.std(axis=0) == pytest.approx(deviation, rel=0.08)
    assert levels.chances.sum() == pytest.approx(1.0)


def test_the_peak_is_named_and_not_the_luckiest_reading() -> None:
    """A rise to 0.6 at step 200 and a fall; a reading at step 380 is higher than all others."""
    level = 0.6 - 0.3 * np.abs(np.arange(41) - 20) / 20
    readings = readings_of(level, 0.02, np.random.default_rng(2))
    readings[38] = (380, 0.67, 0.02)
    levels = checkpoint_levels([100, 190, 300, 380, 400], readings)
    assert levels.steps[levels.best] == 190
    assert levels.chances[levels.best] > 0.99
    mean, low, high = levels.level(levels.best)
    assert low < 0.585 < high
    assert mean == pytest.approx(0.585, abs=0.03)


def test_a_checkpoint_that_was_not_evaluated_has_a_level_between_its_neighbours() -> None:
    readings: Readings = [(step, 0.2 + step / 1000, 0.005) for step in range(0, 400, 20)]
    levels = checkpoint_levels([110, 310], readings)
    assert levels.mean == pytest.approx([0.31, 0.51], abs=0.01)


@pytest.mark.parametrize("number", [1, 2, 600])
def test_few_and_many_readings(number: int) -> None:
    readings: Readings = [(step, 0.4, None) for step in range(number)]
    levels = checkpoint_levels([0, number // 2, number], readings)
    assert np.all(np.isfinite(levels.draws))
    assert levels.mean == pytest.approx(0.4, abs=0.15)


def test_without_a_reading_nothing_is_said() -> None:
    with pytest.raises(ValueError, match="no finite point"):
        checkpoint_levels([1], [])


def simulated(rng: np.random.Generator) -> tuple[CheckpointLevels, Array, Array]:
    """A run with its levels and readings at some checkpoints: half of all runs fall from a peak."""
    place = np.arange(1, int(rng.integers(10, 50))) / 50
    place /= place[-1]
    top, start = rng.uniform(0.3, 0.9), rng.uniform(0.02, 0.25)
    level = sigmoid(place, start, top, rng.uniform(1, 4), np.exp(rng.uniform(-3, -0.3)))
    if rng.random() < 0.5:
        peak = rng.uniform(0.35, 0.95)
        level = level - rng.uniform(0.02, 0.25) * np.clip((place - peak) / (1 - peak), 0, 1)
    level = np.clip(level, 0, 1)
    readings = readings_of(level, float(np.exp(rng.uniform(-5, -3.3))), rng)
    kept = np.unique(np.append(rng.choice(place.size, 5), place.size - 1))
    rates = np.array([rate for _, rate, _ in readings])
    return checkpoint_levels([10 * int(one) for one in kept], readings), level[kept], rates[kept]


def test_the_chance_holds_and_the_named_one_loses_less_than_the_luckiest() -> None:
    """300 simulated runs; lab notes, "Which checkpoint", has more."""
    rng = np.random.default_rng(5)
    claimed, held, lost, lost_by_luck = [], [], [], []
    for _ in range(300):
        levels, truth, rates = simulated(rng)
        claimed.append(levels.chances[levels.best])
        held.append(truth[levels.best] == truth.max())
        lost.append(truth.max() - truth[levels.best])
        lost_by_luck.append(truth.max() - truth[int(np.argmax(rates))])
    claims, holds = np.array(claimed), np.array(held)
    assert np.mean(claims) == pytest.approx(np.mean(holds), abs=0.06)
    for low, high in ((0.0, 0.6), (0.6, 0.9), (0.9, 1.01)):
        chosen = (claims >= low) & (claims < high)
        error = 3 * np.sqrt(0.25 / chosen.sum())
        assert np.mean(claims[chosen]) == pytest.approx(np.mean(holds[chosen]), abs=error)
    assert np.mean(lost) < 0.75 * np.mean(lost_by_luck)
