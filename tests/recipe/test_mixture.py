"""Mixtures: proportions in every stretch, each part like a curriculum of its own, resume without
loss.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.recipe.curriculum import Curriculum
from rollcast.recipe.mixture import MixtureCurriculum, Share, make_curriculum

weights_of_parts = st.lists(st.floats(0.1, 10), min_size=2, max_size=5)


def make(
    weights: list[float], *, size: int = 7, seed: int = 0, remove_at: float | None = 0.9
) -> MixtureCurriculum:
    shares = [
        Share(f"part{n}", [f"part{n}/{i}" for i in range(size + n)], weight)
        for n, weight in enumerate(weights)
    ]
    return MixtureCurriculum(shares, seed=seed, remove_at=remove_at)


def part_of(prompt_id: str | None) -> str:
    assert prompt_id is not None
    return prompt_id.partition("/")[0]


@settings(max_examples=25)
@given(weights=weights_of_parts, start=st.integers(0, 50), length=st.integers(1, 200))
def test_every_stretch_of_the_run_has_the_proportions(
    weights: list[float], start: int, length: int
) -> None:
    mixture = make(weights)
    drawn = [part_of(mixture.draw()) for _ in range(start + length)]
    counts = Counter(drawn[start:])
    for number, weight in enumerate(weights):
        expected = length * weight / sum(weights)
        assert abs(counts[f"part{number}"] - expected) <= len(weights), (counts, weights)


@settings(max_examples=25)
@given(weights=weights_of_parts, seed=st.integers(0, 9))
def test_each_part_draws_as_its_own_curriculum_would(weights: list[float], seed: int) -> None:
    mixture = make(weights, seed=seed)
    drawn = [mixture.draw() for _ in range(120)]
    for number in range(len(weights)):
        own = [prompt for prompt in drawn if part_of(prompt) == f"part{number}"]
        alone = Curriculum([f"part{number}/{i}" for i in range(7 + number)], seed=seed)
        assert own == [alone.draw() for _ in own]


@settings(max_examples=25)
@given(weights=weights_of_parts, cut=st.integers(0, 80), seed=st.integers(0, 9))
def test_a_resumed_mixture_goes_on_as_if_nothing_had_happened(
    weights: list[float], cut: int, seed: int
) -> None:
    def step(mixture: MixtureCurriculum) -> str | None:
        prompt = mixture.draw()
        if prompt is not None:
            mixture.observe(
                prompt, reward=4, graded=rng.choice([4, 5]), sampled=5
            )  # some are removed, some stay
        return prompt

    rng = random.Random(seed)
    whole, first = make(weights), make(weights)
    expected = [step(whole) for _ in range(160)]
    rng.seed(seed)
    drawn = [step(first) for _ in range(cut)]
    second = make(weights)
    second.restore(json.loads(json.dumps(first.state())))
    drawn += [step(second) for _ in range(160 - cut)]
    assert drawn == expected
    assert second.num_removed == whole.num_removed


def test_a_part_without_prompts_left_gives_its_share_to_the_others_until_none_is_left() -> None:
    mixture = make([1.0, 1.0], size=3)
    for index in range(3):
        mixture.observe(f"part0/{index}", reward=4, graded=4, sampled=4)
    assert {part_of(mixture.draw()) for _ in range(20)} == {"part1"}
    assert (mixture.num_removed, mixture.is_exhausted) == (3, False)
    for index in range(4):
        mixture.observe(f"part1/{index}", reward=4, graded=4, sampled=4)
    assert mixture.draw() is None
    assert mixture.is_exhausted


def test_history_is_kept_by_prompt() -> None:
    mixture = make([1.0, 2.0])
    mixture.observe("part1/2", reward=1, graded=4, sampled=4)
    assert (mixture.pass_rate("part1/2"), mixture.counts("part1/2")) == (0.25, (1, 4))
    assert (mixture.pass_rate("part0/2"), mixture.counts("part0/2")) == (None, (0, 0))


def test_another_mixture_or_a_single_set_cannot_be_resumed() -> None:
    saved = make([1.0, 2.0]).state()
    for other in (make([1.0, 3.0]), make([1.0, 2.0, 1.0])):
        with pytest.raises(UserError, match="parts of the mixture or their weights differ"):
            other.restore(saved)
    with pytest.raises(UserError, match="training prompts differ"):
        make([1.0, 2.0], size=8).restore(saved)
    single = make_curriculum([Share("", ["a", "b"], 1.0)], seed=0, remove_at=None)
    with pytest.raises(UserError, match="training prompts differ"):
        single.restore(saved)
    with pytest.raises(UserError, match="parts of the mixture"):
        make([1.0, 2.0]).restore(single.state())


def test_an_empty_part_is_named() -> None:
    with pytest.raises(UserError, match="data set 'code' of the mixture holds no training prompt"):
        MixtureCurriculum([Share("math", ["a"], 1.0), Share("code", [], 1.0)], seed=0)
