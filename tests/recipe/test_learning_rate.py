from __future__ import annotations

import pytest

from rollcast.config.recipe import Optimizer, Recipe
from rollcast.recipe.learning_rate import learning_rate, scaled_to_batch


def test_the_rate_rises_linearly_and_stays() -> None:
    settings = Optimizer(learning_rate=5e-7, warmup_steps=100)
    rates = [learning_rate(settings, updates) for updates in range(150)]
    assert rates[:3] == pytest.approx([5e-9, 1e-8, 1.5e-8])
    assert rates[98] < rates[99] == 5e-7
    assert set(rates[99:]) == {5e-7}
    assert learning_rate(Optimizer(learning_rate=1e-3, warmup_steps=0), 0) == 1e-3


@pytest.mark.parametrize(
    ("prompts", "rollouts", "factor"),
    [(48, 16, 1.0), (96, 32, 2.0), (12, 16, 0.5), (128, 16, (2048 / 768) ** 0.5)],
)
def test_the_rate_follows_the_square_root_of_the_batch(
    prompts: int, rollouts: int, factor: float
) -> None:
    optimizer = Optimizer(scale_with_batch=True)
    recipe = Recipe(prompts_per_step=prompts, rollouts_per_prompt=rollouts, optimizer=optimizer)
    assert scaled_to_batch(recipe).learning_rate == pytest.approx(5e-7 * factor)
    assert scaled_to_batch(recipe).model_copy(update={"learning_rate": 5e-7}) == optimizer


def test_by_default_the_batch_does_not_matter() -> None:
    assert scaled_to_batch(Recipe(prompts_per_step=128)) == Recipe().optimizer
