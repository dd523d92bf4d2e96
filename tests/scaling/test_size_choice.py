"""Where the best size changes, against a dense search on planted laws and on every draw."""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.decisions.size_choice import crossing, size_changes
from rollcast.scaling.law.model_size import ModelSizeLaw, fit_model_size

SIZES = [0.6e9, 1.7e9, 4e9]
BUDGETS = np.geomspace(1.0, 1e5, 40_001)


def planted_loss(size: float, compute: np.ndarray, slope: float) -> np.ndarray:
    return np.exp(0.2 - slope * np.log(4e9) + slope * np.log(size)) * compute ** -(
        0.35 / (1 + 2e9 / size)
    )


def planted_law(slope: float, noise: float = 0.005, seed: int = 0) -> ModelSizeLaw:
    compute = np.geomspace(20, 2000, 30)
    rng = np.random.default_rng(seed)
    size = np.repeat(SIZES, compute.size)
    loss = np.concatenate([planted_loss(n, compute, slope) for n in SIZES])
    return fit_model_size(
        size,
        np.tile(compute, len(SIZES)),
        1 - loss * np.exp(noise * rng.standard_normal(loss.size)),
    )


@pytest.mark.parametrize("slope", [0.3, 0.45])
def test_the_changes_are_those_of_a_dense_search_on_the_planted_law(slope: float) -> None:
    best = np.argmin([planted_loss(size, BUDGETS, slope) for size in SIZES], axis=0)
    places = np.flatnonzero(np.diff(best)) + 1
    found = size_changes(planted_law(slope), SIZES, BUDGETS[0], BUDGETS[-1])
    assert [(change.smaller, change.larger) for change in found] == [
        (best[p - 1], best[p]) for p in places
    ]
    assert len(found) >= 1
    for change, place in zip(found, places, strict=True):
        low, middle, high = change.budget
        assert middle == pytest.approx(BUDGETS[place], rel=0.15)
        assert low < middle < high


def test_the_interval_of_a_change_holds_the_planted_one_about_as_often_as_it_says() -> None:
    best = np.argmin([planted_loss(size, BUDGETS, 0.45) for size in (SIZES[0], SIZES[2])], axis=0)
    truth = BUDGETS[np.flatnonzero(np.diff(best))[0]]
    runs = 40
    quantiles = [
        crossing(planted_law(0.45, noise=0.02, seed=seed), SIZES[0], SIZES[2])
        for seed in range(runs)
    ]
    assert sum(low <= truth <= high for low, _, high in quantiles) >= 0.8 * runs


def test_the_quantiles_are_those_of_a_search_in_every_draw() -> None:
    law = planted_law(0.45, noise=0.02)
    grid = np.geomspace(1.0, 1e6, 2001)

    def log_loss(size: float, draw: int) -> np.ndarray:
        efficiency = law.efficiency[draw] / (1 + law.saturation[draw] / size)
        return law.constant[draw] + law.size_slope[draw] * np.log(size) - efficiency * np.log(grid)

    first = [
        grid[np.argmax(log_loss(SIZES[2], draw) < log_loss(SIZES[0], draw))]
        for draw in range(0, law.noise.size, 8)
    ]
    assert crossing(law, SIZES[0], SIZES[2]) == pytest.approx(
        np.quantile(first, (0.05, 0.5, 0.95)), rel=0.05
    )


def test_a_larger_model_that_starts_ahead_is_better_and_one_that_learns_no_faster_never() -> None:
    def law(slope: float, efficiency: float) -> ModelSizeLaw:
        ones = np.ones(16)
        return ModelSizeLaw(0 * ones, slope * ones, efficiency * ones, 1e9 * ones, 0.01 * ones)

    assert crossing(law(-1e3, 0.2), 1e9, 2e9).tolist() == [0.0] * 3
    assert crossing(law(0.1, 0.0), 1e9, 2e9).tolist() == [np.inf] * 3
    assert size_changes(law(-1e3, 0.2), [1e9, 2e9], 1.0, 1e6) == []
    with pytest.raises(ValueError, match="ascending"):
        crossing(law(0.1, 0.2), 2e9, 1e9)
