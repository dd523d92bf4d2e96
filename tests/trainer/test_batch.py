from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.recipe.effective_batch import EffectiveBatch
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    decode_micro_batches,
    denominator,
    encode_micro_batches,
    padded_tokens,
    plan_micro_batches,
    training_sequences,
)
from tests.trainer.tiny_models import make_groups


def sequence(num_prompt: int, num_tokens: int, seed: int = 0) -> TrainingSequence:
    rng = np.random.default_rng(seed)
    return TrainingSequence(
        prompt_token_ids=rng.integers(0, 1000, num_prompt, dtype=np.int32),
        token_ids=rng.integers(0, 1000, num_tokens, dtype=np.int32),
        generator_logprobs=rng.normal(size=num_tokens).astype(np.float32),
        loss_mask=rng.random(num_tokens) < 0.8,
        advantage=float(rng.normal()),
        weight=float(rng.random()),
    )


def with_experts(plain: TrainingSequence) -> TrainingSequence:
    shape = (plain.num_tokens - 1, 3, 2)
    return dataclasses.replace(
        plain, routed_experts=np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    )


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=40)


@given(lengths, st.integers(1, 5), st.integers(1, 300))
def test_plan_uses_every_sequence_once_within_the_budget(
    sizes: list[tuple[int, int]], world_size: int, max_tokens: int
) -> None:
    sequences = [sequence(prompt, tokens, seed) for seed, (prompt, tokens) in enumerate(sizes)]
    ranks = plan_micro_batches(sequences, world_size=world_size, max_tokens=max_tokens)
    assert len(ranks) == world_size
    assert len({len(micro_batches) for micro_batches in ranks}) == 1
    planned = [micro_batch for micro_batches in ranks for micro_batch in micro_batches]
    assert Counter(id(s) for micro_batch in planned for s in micro_batch) == Counter(
        id(s) for s in sequences
    )
    assert all(padded_tokens(m) <= max_tokens or len(m) == 1 for m in planned)
    # Never so many empty passes that one round less would have done.
    assert sum(not micro_batch for micro_batch in planned) < world_size


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_plan_is_balanced(world_size: int) -> None:
    rng = np.random.default_rng(0)
    sizes = np.clip(rng.lognormal(4, 0.8, 512), 10, 1000).astype(int)
    ranks = plan_micro_batches(
        [sequence(10, n) for n in sizes], world_size=world_size, max_tokens=2000
    )
    # The ranks run in lock-step: a row takes as long as its largest micro-batch.
    elapsed = sum(max(map(padded_tokens, row)) for row in zip(*ranks, strict=True))
    work = sum(
        padded_tokens(micro_batch) for micro_batches in ranks for micro_batch in micro_batches
    )
    assert elapsed <= 1.1 * work / world_size


@given(lengths, st.floats(1e-6, 1e9))
def test_codec_round_trip(sizes: list[tuple[int, int]], total: float) -> None:
    sequences = [sequence(prompt, tokens, seed) for seed, (prompt, tokens) in enumerate(sizes)]
    sequences = [with_experts(one) if place % 3 else one for place, one in enumerate(sequences)]
    sequences = [
        dataclasses.replace(one, kl_factor=0.1 * place, entropy_factor=2.0)
        for place, one in enumerate(sequences)
    ]
    micro_batches = [tuple(sequences[::2]), (), tuple(sequences[1::2])]
    decoded, found = decode_micro_batches(encode_micro_batches(micro_batches, total))
    assert found == total
    assert [len(micro_batch) for micro_batch in decoded] == [
        len(micro_batch) for micro_batch in micro_batches
    ]
    for left, right in zip(micro_batches, decoded, strict=True):
        for a, b in zip(left, right, strict=True):
            for name in ("advantage", "weight", "kl_factor", "entropy_factor"):
                assert getattr(a, name) == getattr(b, name)
            for name in (
                "prompt_token_ids",
                "token_ids",
                "generator_logprobs",
                "loss_mask",
                "routed_experts",
            ):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@given(st.data())
def test_cut_or_foreign_bytes_are_refused(data: st.DataObject) -> None:
    whole = encode_micro_batches([(sequence(3, 5), with_experts(sequence(2, 9)))], 1.0)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for hostile in (whole[:cut], whole + b"x", data.draw(st.binary(max_size=200))):
        with pytest.raises((ValueError, OverflowError)):
            decode_micro_batches(hostile)


def test_only_kept_rollouts_become_sequences() -> None:
    groups = make_groups(3)
    num_rollouts = sum(len(group.rollouts) for group in groups)
    kept = np.arange(num_rollouts) % 2 == 0
    weights = np.where(kept, np.arange(num_rollouts) / 10, 0.0)
    effective = EffectiveBatch(kept_mask=kept, advantages=weights * 2, weights=weights)
    sequences = training_sequences(groups, effective)
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    expected = 0.0
    for index, found in zip(np.flatnonzero(kept), sequences, strict=True):
        np.testing.assert_array_equal(found.token_ids, rollouts[index].token_ids)
        forced = sum(end - start for start, end in rollouts[index].loss_masked)
        assert (~found.loss_mask).sum() == forced
        assert found.advantage == 2 * found.weight
        expected += found.weight * (rollouts[index].num_tokens - forced)
    assert denominator(sequences) == pytest.approx(expected)
