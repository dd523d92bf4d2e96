"""Factors of the regularisation's coefficients against a loop over prompts."""

from __future__ import annotations

import random

import numpy as np
import pytest

from rollcast.recipe.difficulty import coefficient_factors


def test_factors_are_linear_in_the_pass_rate_of_what_is_trained_on() -> None:
    rng = random.Random(6)
    for _ in range(20):
        group = [rng.randrange(5) for _ in range(30)]
        rewards = [rng.choice([0.0, 0.5, 1.0]) for _ in group]
        kept = [rng.random() < 0.6 for _ in group]
        found = coefficient_factors(np.array(rewards), np.array(group), np.array(kept))
        for place, prompt in enumerate(group):
            own = [rewards[i] for i in range(30) if group[i] == prompt and kept[i]]
            pass_rate = sum(own) / len(own) if own else 0.5
            assert found.kl[place] == pytest.approx(2 * pass_rate)
            assert found.entropy[place] == pytest.approx(2 * (1 - pass_rate))


def test_an_empty_batch_has_no_factors() -> None:
    found = coefficient_factors(
        np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    )
    assert (len(found.kl), len(found.entropy)) == (0, 0)
