"""Filters, advantages and weights as properties over arbitrary batches."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollcast.recipe.advantages import advantages
from rollcast.recipe.aggregation import rollout_weights
from rollcast.recipe.custom_functions import GroupRecord
from rollcast.recipe.effective_batch import EffectiveBatch, effective_batch, filter_zero_variance

rollout = st.tuples(
    st.integers(0, 5),  # prompt
    st.sampled_from([0.0, 1.0, -1.0, 0.1 + 0.2, 0.3]),  # reward
    st.integers(0, 20),  # loss tokens
    st.booleans(),  # excluded
)
batches = st.lists(rollout, max_size=40)


def plan(rows: list[tuple[int, float, int, bool]], **switches: object) -> EffectiveBatch:
    """`rewards` and what is shaped of them are the same unless `switches` say else."""
    rewards = np.array([row[1] for row in rows], dtype=np.float64)
    return effective_batch(
        rewards=rewards,
        group=np.array([row[0] for row in rows], dtype=np.int64),
        loss_tokens=np.array([row[2] for row in rows], dtype=np.int64),
        excluded=np.array([row[3] for row in rows], dtype=np.bool_),
        **({"shaped": rewards} | switches),  # type: ignore[arg-type]
    )


@settings(max_examples=25)
@given(rows=batches, zero_variance_filter=st.booleans())
def test_kept_are_the_usable_rollouts_of_prompts_with_two_different_rewards(
    rows: list[tuple[int, float, int, bool]], zero_variance_filter: bool
) -> None:
    batch = plan(rows, zero_variance_filter=zero_variance_filter)
    for i, (prompt, _, tokens, excluded) in enumerate(rows):
        usable = tokens > 0 and not excluded
        peers = {other[1] for other in rows if other[0] == prompt and other[2] > 0 and not other[3]}
        assert batch.kept_mask[i] == (usable and (len(peers) > 1 or not zero_variance_filter))
        if not batch.kept_mask[i]:
            assert batch.advantages[i] == 0
            assert batch.weights[i] == 0


@settings(max_examples=25)
@given(
    rows=batches,
    taken_off=st.lists(st.floats(0, 0.5), min_size=40, max_size=40),
    normalisation=st.sampled_from(["batch", "prompt", "none", "leave_one_out"]),
)
def test_the_verifiers_reward_decides_who_is_kept_and_the_shaped_one_what_it_is_worth(
    rows: list[tuple[int, float, int, bool]], taken_off: list[float], normalisation: str
) -> None:
    shaped = np.array([row[1] for row in rows]) - np.array(taken_off[: len(rows)])
    batch = plan(rows, shaped=shaped, normalisation=normalisation)
    plain = plan(rows, normalisation=normalisation)
    assert batch.kept_mask.tolist() == plain.kept_mask.tolist()
    assert batch.weights.tolist() == plain.weights.tolist()
    of_kept = plan(
        [
            (row[0], value, row[2], not kept)
            for row, value, kept in zip(rows, shaped, batch.kept_mask, strict=True)
        ],
        normalisation=normalisation,
        zero_variance_filter=False,
    )
    assert batch.advantages.tolist() == of_kept.advantages.tolist()


@settings(max_examples=25)
@given(rows=batches, aggregation=st.sampled_from(["prompt", "sample", "token"]))
def test_the_denominator_counts_prompts_rollouts_or_tokens(
    rows: list[tuple[int, float, int, bool]], aggregation: str
) -> None:
    batch = plan(rows, aggregation=aggregation)
    tokens = np.array([row[2] for row in rows], dtype=np.int64)
    kept = [row for row, keep in zip(rows, batch.kept_mask, strict=True) if keep]
    counted = {
        "prompt": len({row[0] for row in kept}),
        "sample": len(kept),
        "token": sum(row[2] for row in kept),
    }
    assert float((batch.weights * tokens).sum()) == pytest.approx(counted[aggregation])


@settings(max_examples=25)
@given(rows=batches, aggregation=st.sampled_from(["prompt", "sample"]))
def test_each_prompt_or_rollout_has_weight_one(
    rows: list[tuple[int, float, int, bool]], aggregation: str
) -> None:
    batch = plan(rows, aggregation=aggregation)
    for unit in {row[0] for row in rows} if aggregation == "prompt" else range(len(rows)):
        members = [
            i for i, row in enumerate(rows) if (row[0] if aggregation == "prompt" else i) == unit
        ]
        weight = sum(batch.weights[i] * rows[i][2] for i in members)
        assert weight == pytest.approx(1.0 if any(batch.kept_mask[i] for i in members) else 0.0)


@example(
    rows=[(0, 0.3, 1, False), (0, 0.1 + 0.2, 1, False), (0, 0.3, 1, False)], order=random.Random(1)
)
@settings(max_examples=25)
@given(rows=batches, order=st.randoms(use_true_random=False))
def test_the_order_of_rollouts_and_the_names_of_prompts_do_not_matter(
    rows: list[tuple[int, float, int, bool]], order: object
) -> None:
    permutation = list(range(len(rows)))
    order.shuffle(permutation)  # type: ignore[attr-defined]
    batch = plan(rows)
    moved = plan([(1000 - rows[i][0], *rows[i][1:]) for i in permutation])
    assert moved.kept_mask.tolist() == [batch.kept_mask[i] for i in permutation]
    # Rewards that differ in the last bit only: the rounding of their mean, divided by little more
    # than STD_EPSILON.
    np.testing.assert_allclose(
        moved.advantages, [batch.advantages[i] for i in permutation], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(moved.weights, [batch.weights[i] for i in permutation], rtol=1e-12)


@settings(max_examples=25)
@given(
    rows=batches,
    shift=st.floats(-5, 5),
    normalisation=st.sampled_from(["batch", "prompt", "none", "leave_one_out"]),
)
def test_advantages_are_centred_and_ignore_a_shift_of_all_rewards(
    rows: list[tuple[int, float, int, bool]], shift: float, normalisation: str
) -> None:
    rewards = np.array([row[1] for row in rows], dtype=np.float64)
    group = np.array([row[0] for row in rows], dtype=np.int64)
    values = advantages(normalisation, rewards, group)  # type: ignore[arg-type]
    for prompt in set(group.tolist()):
        assert values[group == prompt].sum() == pytest.approx(0, abs=1e-6)
    spread = [np.ptp(rewards[group == prompt]) for prompt in set(group.tolist())]
    if spread and max(spread) > 0.05 and normalisation != "prompt":
        np.testing.assert_allclose(
            advantages(normalisation, rewards + shift, group),  # type: ignore[arg-type]
            np.asarray(values),
            atol=1e-9,
        )


def test_batch_advantages_have_unit_standard_deviation() -> None:
    rewards = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    values = advantages("batch", rewards, np.array([0, 0, 0, 1, 1, 1]))
    assert values.std() == pytest.approx(1, abs=1e-5)


def test_rewards_that_differ_in_the_last_bit_only_are_still_different() -> None:
    """Equality, not a tolerance: 0.1 + 0.2 and 0.3 are two rewards, two copies of 0.3 are one."""
    group, kept = np.zeros(2, dtype=np.int64), np.ones(2, dtype=np.bool_)
    assert filter_zero_variance(np.array([0.1 + 0.2, 0.3]), group, kept).all()
    assert not filter_zero_variance(np.array([0.3, 0.3]), group, kept).any()


def test_truncated_rollouts_leave_before_the_variance_is_looked_at() -> None:
    batch = plan([(0, 1.0, 5, False), (0, 1.0, 5, False), (0, 0.0, 5, True)])
    assert not batch.kept_mask.any()


def test_long_batches_keep_exact_prompt_weights() -> None:
    tokens = np.full(768, 14_336, dtype=np.int64)
    weights = rollout_weights("prompt", np.repeat(np.arange(48), 16), tokens)
    assert weights == pytest.approx(1 / (16 * 14_336))


def test_a_filter_of_your_own_sees_graded_rollouts_alone() -> None:
    """Three groups: of one, all of another and none of the last have a verdict."""
    rows = [
        (prompt, reward, 1 + index, False)
        for prompt in range(3)
        for index, reward in enumerate((1.0, 0.0))
    ]
    seen: list[tuple[list[float], list[int]]] = []

    def keeps(_: int, group: GroupRecord) -> bool:
        seen.append((group.rewards.tolist(), group.loss_tokens.tolist()))
        return len(group.rewards) == 2

    graded = np.array([True, False, True, True, False, False])
    batch = plan(rows, keeps_group=keeps, graded=graded, zero_variance_filter=False)
    assert seen == [([1.0], [1]), ([1.0, 0.0], [1, 2])]
    assert batch.kept_mask.tolist() == [False, False, True, True, True, True]
