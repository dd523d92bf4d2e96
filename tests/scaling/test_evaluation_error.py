"""The planned interval of a pass rate, against simulated evaluations of prompts whose own pass
rates are known.
"""

from __future__ import annotations

import numpy as np
import pytest

from rollcast.scaling.law.evaluation_error import evaluation_error
from rollcast.scaling.law.settings import HALF_WIDTH_90_STD

REPETITIONS = 4_000


@pytest.mark.parametrize(
    ("prompts", "samples", "mean", "spread"),
    [(50, 4, 0.5, 0.5), (20, 16, 0.3, 0.8), (100, 1, 0.2, 0.1)],
)
def test_both_intervals_are_those_of_simulated_evaluations(
    prompts: int, samples: int, mean: float, spread: float
) -> None:
    """Own pass rates are Beta distributed: the share of the variance between prompts is then 1 / (a
    + b + 1).
    """
    numbers = np.random.default_rng(0)
    size = 1 / spread - 1
    own = numbers.beta(mean * size, (1 - mean) * size, (REPETITIONS, prompts))
    error = evaluation_error(prompts, samples, mean, spread)
    others = numbers.binomial(samples, own).mean(axis=1) / samples
    assert HALF_WIDTH_90_STD * others.std() == pytest.approx(error.other_prompts, rel=0.05)
    within = others - own.mean(axis=1)
    assert HALF_WIDTH_90_STD * within.std() == pytest.approx(error.same_prompts, rel=0.05)
    assert (abs(others - mean) <= error.other_prompts).mean() == pytest.approx(0.9, abs=0.03)
