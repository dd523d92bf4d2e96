from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.errors import UserError
from rollcast.recipe.data_reuse import reduce_shares
from rollcast.recipe.mixture import Share

IDS = [f"p{i}" for i in range(100)]


def drawn(size: int | None, seed: int) -> list[str]:
    (share,) = reduce_shares([Share("", IDS, 1.0)], size, seed=seed)
    return list(share.prompt_ids)


def test_smaller_subsets_are_part_of_larger_ones_and_keep_the_order() -> None:
    sizes = [1, 7, 50, 99, 100]
    subsets = [drawn(size, seed=3) for size in sizes]
    for small, large in itertools.pairwise(subsets):
        assert set(small) < set(large)
    assert [len(chosen) for chosen in subsets] == sizes
    assert all(chosen == [name for name in IDS if name in chosen] for chosen in subsets)
    assert subsets[-1] == drawn(None, seed=3) == IDS


def test_the_seed_decides_which() -> None:
    assert drawn(10, seed=1) == drawn(10, seed=1)
    assert drawn(10, seed=1) != drawn(10, seed=2)


def test_more_prompts_than_there_are_is_one_sentence() -> None:
    with pytest.raises(
        UserError, match=r"recipe\.unique_prompts = 101: the data set has 100 training prompts"
    ):
        drawn(101, seed=0)


def mixture(sizes: list[int]) -> list[Share]:
    return [
        Share(f"d{part}", [f"{part}/{i}" for i in range(size)], 1.0 + part)
        for part, size in enumerate(sizes)
    ]


@settings(max_examples=25)
@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.data())
def test_every_part_of_a_mixture_is_reduced_alike(sizes: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(len(sizes), sum(sizes)))
    parts = reduce_shares(mixture(sizes), total, seed=5)
    assert [(part.name, part.weight) for part in parts] == [
        (part.name, part.weight) for part in mixture(sizes)
    ]
    counts = [len(part.prompt_ids) for part in parts]
    assert sum(counts) == total
    assert min(counts) >= 1
    for part, whole in zip(parts, mixture(sizes), strict=True):
        assert [
            name for name in whole.prompt_ids if name in set(part.prompt_ids)
        ] == part.prompt_ids
    if total < sum(sizes):
        larger = reduce_shares(mixture(sizes), total + 1, seed=5)
        for small, large in zip(parts, larger, strict=True):
            assert set(small.prompt_ids) <= set(large.prompt_ids)


def test_a_quarter_of_a_mixture_is_a_quarter_of_each_part() -> None:
    assert [
        len(part.prompt_ids) for part in reduce_shares(mixture([400, 80, 20]), 125, seed=0)
    ] == [100, 20, 5]


def test_a_small_part_keeps_a_prompt() -> None:
    assert [len(part.prompt_ids) for part in reduce_shares(mixture([1_000, 3]), 10, seed=0)] == [
        9,
        1,
    ]


def test_fewer_prompts_than_parts_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"recipe\.unique_prompts = 2: the mixture has 3 parts"):
        reduce_shares(mixture([5, 5, 5]), 2, seed=0)
