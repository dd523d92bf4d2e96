"""Forced interruption and the length penalty."""

from __future__ import annotations

from collections import Counter

import pytest

from rollcast.recipe.length_control import interruption_position, length_penalty


def draw(seed: int, sequence: int, rollout: int, low: int = 10_000, high: int = 12_000) -> int:
    return interruption_position(seed=seed, sequence=sequence, rollout=rollout, low=low, high=high)


def test_positions_are_uniform_and_reach_both_ends() -> None:
    counts = Counter(
        draw(0, sequence, rollout, 5, 9) for sequence in range(500) for rollout in range(10)
    )
    assert sorted(counts) == [5, 6, 7, 8, 9]
    assert all(abs(count - 1000) < 5 * 28.3 for count in counts.values())  # 5 standard deviations


def test_a_position_depends_on_seed_task_and_rollout_only() -> None:
    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({draw(1, 2, 3), draw(9, 2, 3), draw(1, 9, 3), draw(1, 2, 9)}) == 4


def test_a_range_of_one_position() -> None:
    assert draw(0, 0, 0, 7, 7) == 7


@pytest.mark.parametrize(
    ("length", "penalty"),
    [(0, 0), (12_000, 0), (12_500, -0.25), (13_000, -0.5), (14_000, -1), (99_999, -1)],
)
def test_the_penalty_falls_over_the_cache(length: int, penalty: float) -> None:
    assert length_penalty(length, max_tokens=14_000, cache_tokens=2_000) == pytest.approx(penalty)
