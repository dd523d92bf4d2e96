"""Credit of turns against loops over rollouts, turns and tokens, and against the advantages of
whole episodes.
"""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from rollcast.recipe.advantages import STD_EPSILON, Normalisation, advantages
from rollcast.recipe.credit import credited_turns, turn_advantages, turn_returns

NORMALISATIONS = get_args(Normalisation)


def slow_return(rewards: list[float], whole: float, discount: float, turn: int) -> float:
    """The docstring's sum, term by term."""
    last = len(rewards) - 1
    total = discount ** (last - turn) * whole
    for later in range(turn, len(rewards)):
        total += discount ** (later - turn) * rewards[later]
    return total


def slow_advantages(
    normalisation: Normalisation, returns: list[list[float]], group: list[int]
) -> list[list[float]]:
    means = [sum(values) / len(values) for values in returns]
    centred: list[list[float]] = []
    for i, values in enumerate(returns):
        others = [means[j] for j in range(len(returns)) if group[j] == group[i]]
        baseline = sum(others) / len(others)
        if normalisation == "leave_one_out":
            left = len(others) - 1
            baseline = (sum(others) - means[i]) / left if left else math.nan
        centred.append([0.0 if math.isnan(baseline) else value - baseline for value in values])
    found: list[list[float]] = []
    for i, values in enumerate(centred):
        members = range(len(returns))
        if normalisation == "prompt":
            members = [j for j in members if group[j] == group[i]]  # type: ignore[assignment]
        squares = [sum(value**2 for value in centred[j]) / len(centred[j]) for j in members]
        deviation = math.sqrt(sum(squares) / len(squares)) + STD_EPSILON
        is_divided = normalisation in ("batch", "prompt")
        found.append([value / deviation if is_divided else value for value in values])
    return found


def random_batch(
    seed: int,
) -> tuple[list[NDArray[np.float64]], NDArray[np.float64], NDArray[np.int64]]:
    """Rewards of turns, rewards of episodes, and groups of one to five episodes."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(6) * 3, rng.integers(1, 6, 6))
    turns = [rng.normal(size=int(rng.integers(1, 8))) for _ in group]
    return turns, rng.integers(0, 2, len(group)).astype(np.float64), group


@pytest.mark.parametrize("discount", [1.0, 0.9, 0.25])
@pytest.mark.parametrize("seed", range(5))
def test_returns_equal_the_sum_over_later_turns(seed: int, discount: float) -> None:
    turns, wholes, _ = random_batch(seed)
    for rewards, whole in zip(turns, wholes, strict=True):
        wanted = [
            slow_return(rewards.tolist(), whole, discount, turn) for turn in range(len(rewards))
        ]
        np.testing.assert_allclose(
            turn_returns(rewards, whole, discount), wanted, rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
@pytest.mark.parametrize("seed", range(5))
def test_turn_advantages_equal_a_slow_loop(seed: int, normalisation: Normalisation) -> None:
    turns, wholes, group = random_batch(seed)
    returns = [
        turn_returns(rewards, whole, 0.9) for rewards, whole in zip(turns, wholes, strict=True)
    ]
    found = turn_advantages(normalisation, returns, group)
    wanted = slow_advantages(normalisation, [values.tolist() for values in returns], group.tolist())
    assert [len(values) for values in found] == [len(values) for values in turns]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalisation", NORMALISATIONS)
def test_without_rewards_of_turns_every_turn_has_the_episodes_advantage(
    normalisation: Normalisation,
) -> None:
    turns, wholes, group = random_batch(7)
    returns = [
        turn_returns(np.zeros(len(rewards)), whole, 1.0)
        for rewards, whole in zip(turns, wholes, strict=True)
    ]
    found = turn_advantages(normalisation, returns, group)
    for values, of_episode in zip(found, advantages(normalisation, wholes, group), strict=True):
        np.testing.assert_allclose(values, of_episode, rtol=1e-12, atol=1e-12)


def test_an_episode_counts_once_however_many_turns_it_has() -> None:
    short = np.array([1.0])
    long = np.zeros(9)
    found = turn_advantages("none", [short, long], np.array([0, 0]))
    np.testing.assert_allclose(found[0], [0.5])
    np.testing.assert_allclose(found[1], np.full(9, -0.5))


def test_no_episode_has_no_advantage() -> None:
    assert turn_advantages("batch", [], np.zeros(0, np.int64)) == []


def test_a_token_belongs_to_the_last_turn_that_began() -> None:
    assert credited_turns(np.array([1, 4]), 6).tolist() == [0, 0, 0, 0, 1, 1]
