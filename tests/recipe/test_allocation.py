"""Rollouts by difficulty against every other way of sharing the same budget."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.recipe import DifficultyAllocation, Recipe
from rollcast.recipe.allocation import allocated_rollouts, rollouts_by_difficulty

seen = st.tuples(st.integers(0, 64), st.integers(1, 64)).filter(
    lambda counts: counts[0] <= counts[1]
)
histories = st.lists(st.one_of(st.just((0, 0)), seen), max_size=60)


def spread(correct: int, graded: int) -> float:
    pass_rate = (correct + 1) / (graded + 2)
    return pass_rate * (1 - pass_rate)


@settings(max_examples=25)
@given(histories, st.integers(2, 6), st.integers(0, 10), st.integers(0, 20))
def test_the_budget_is_spent_exactly_and_bounds_hold(
    counts: list[tuple[int, int]], least: int, above: int, room: int
) -> None:
    mean, most = least + above, least + above + room
    numbers = rollouts_by_difficulty(counts, mean=mean, min_rollouts=least, max_rollouts=most)
    assert sum(numbers) == mean * len(counts)
    assert all(least <= number <= most for number in numbers)
    assert all(
        number == mean for number, (_, graded) in zip(numbers, counts, strict=True) if graded == 0
    )


@settings(max_examples=25)
@given(
    st.lists(seen, min_size=1, max_size=4), st.integers(2, 4), st.integers(0, 3), st.integers(0, 4)
)
def test_no_other_sharing_has_a_smaller_summed_variance(
    counts: list[tuple[int, int]], least: int, above: int, room: int
) -> None:
    mean, most = least + above, least + above + room

    def variance(numbers: tuple[int, ...]) -> float:
        return sum(
            spread(*history) / number for history, number in zip(counts, numbers, strict=True)
        )

    ways = [
        way
        for way in product(range(least, most + 1), repeat=len(counts))
        if sum(way) == mean * len(counts)
    ]
    found = variance(
        tuple(rollouts_by_difficulty(counts, mean=mean, min_rollouts=least, max_rollouts=most))
    )
    assert found == pytest.approx(min(map(variance, ways)), rel=1e-12)


def test_more_goes_to_prompts_near_one_half() -> None:
    counts = [(0, 16), (2, 16), (8, 16), (14, 16), (16, 16), (0, 0)]
    numbers = rollouts_by_difficulty(counts, mean=16, min_rollouts=8, max_rollouts=32)
    never, seldom, half, often, always, new = numbers
    assert half > seldom > never
    assert (seldom, never) == pytest.approx((often, always), abs=1)
    assert new == 16


def test_the_default_gives_every_prompt_the_same() -> None:
    assert allocated_rollouts(Recipe(), [(0, 16), (8, 16), (0, 0)]) == [16, 16, 16]


def test_a_recipe_by_difficulty_says_how_many_slots_a_task_may_need() -> None:
    recipe = Recipe(rollout_allocation=DifficultyAllocation(least=4, most=24))
    numbers = allocated_rollouts(recipe, [(0, 16), (8, 16)])
    assert sum(numbers) == 32
    assert max(numbers) <= recipe.most_rollouts_per_prompt == 24
    assert Recipe().most_rollouts_per_prompt == 16
