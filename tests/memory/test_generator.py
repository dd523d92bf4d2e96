"""KV cache and weights of a generator's worker, against published figures and vLLM's rules."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.memory.verdict import warnings
from testkit.published_models import LLAMA4_SCOUT, QWEN3_8B, QWEN3_30B_A3B, QWEN3_NEXT_80B
from tests.memory.plans import plan_of

SHORTEST = {
    "max_prompt_tokens": 128,
    "max_completion_tokens": 256,
    "length_control": {"kind": "none"},
}
SHORT = {"max_completion_tokens": 6144, "length_control": {"kind": "none"}}
GEMMA2_2B: dict[str, Any] = {
    "model_type": "gemma2",
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 8192,
    "vocab_size": 256_000,
}


def test_a_token_of_qwen3_8b_takes_144_kib_and_half_of_it_on_each_of_two_workers() -> None:
    assert plan_of(QWEN3_8B).worker.kv_of_slot(16) == 16 * 144 * 1024
    assert (
        plan_of(QWEN3_8B, generator={"tensor_parallel": 2}).worker.kv_of_slot(16) == 16 * 72 * 1024
    )
    many = plan_of(QWEN3_30B_A3B, generator={"tensor_parallel": 8}).worker
    assert many.kv_of_slot(16) == 16 * 48 * 2 * 128 * 2, "4 heads are not cut further"


def test_a_window_holds_no_more_than_it_looks_back_at_and_a_batch() -> None:
    worker = plan_of(GEMMA2_2B, model={"max_length": 8192}, recipe=SHORT).worker
    token = 2 * 4 * 256 * 2
    window = 4096 - 1 + 2048
    blocks = -(-window // 16) * 16 + 16
    assert worker.kv_of_slot(8192) == 13 * token * (8192 + blocks)
    chunked = plan_of(LLAMA4_SCOUT, model={"max_length": 32_768}).worker
    assert chunked.kv_of_slot(32_768) == 2 * 8 * 128 * 2 * (12 * 32_768 + 36 * (8192 + 2048))


def test_a_layer_with_a_state_takes_two_blocks_that_hold_one_whatever_the_length() -> None:
    worker = plan_of(QWEN3_NEXT_80B).worker
    state = 8192 * 3 * 2 + 32 * 128 * 128 * 4
    entry = 2 * 2 * 256 * 2
    block = 1056
    assert block * entry >= state > (block - 16) * entry
    assert worker.kv_of_slot(16_384) == block * entry * (12 * 16 + 36 * 2)
    assert worker.kv_of_slot(16_384) - worker.kv_of_slot(8192) == block * entry * 12 * 8


def test_slots_get_what_weights_and_activations_leave() -> None:
    worker = plan_of(QWEN3_8B, generator={"slots": 192}).worker
    assert worker.taken_by_engine == 72_000_000_000
    assert worker.weights == 2 * 8_190_735_360
    assert worker.kv_bytes == worker.taken_by_engine - worker.weights - worker.activations
    assert worker.kv_of_slot(worker.tokens_per_slot) * 192 <= worker.kv_bytes
    assert worker.kv_of_slot(worker.tokens_per_slot + 16) * 192 > worker.kv_bytes
    assert worker.slots_that_fit * worker.kv_of_slot(16_384) <= worker.kv_bytes


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_share_projections_and_hold_norms_each(workers: int) -> None:
    alone = plan_of(QWEN3_30B_A3B).worker
    worker = plan_of(QWEN3_30B_A3B, generator={"tensor_parallel": workers}).worker
    whole, numbers = workers * worker.weights, 48 * (2 * 2048 + 2 * 128 + 128 * 2048) + 2048
    assert whole == alone.weights + (workers - 1) * 2 * numbers


def test_on_a_cpu_the_cache_is_what_was_asked_for() -> None:
    worker = plan_of(QWEN3_8B, gpu=None, generator={"cpu_kv_cache_gib": 3, "block_size": 32}).worker
    assert worker.kv_bytes == 3 << 30
    assert worker.taken_by_engine == worker.weights + worker.activations + worker.kv_bytes
    assert worker.kv_of_slot(33) == 64 * 144 * 1024


def test_slots_that_are_left_out_are_the_rollouts_of_full_length_that_the_kv_cache_holds() -> None:
    given = plan_of(QWEN3_8B, generator={"slots": 18, "gpu_memory_utilization": 0.78}).worker
    derived = plan_of(QWEN3_8B, generator={"slots": None, "gpu_memory_utilization": 0.78}).worker
    assert derived.slots == derived.slots_that_fit <= given.slots_that_fit
    assert derived.activations > given.activations, "the sampler is tried out with 256"
    assert derived.tokens_per_slot == 16_384
    assert (
        warnings(plan_of(QWEN3_8B, generator={"slots": None, "gpu_memory_utilization": 0.78})) == []
    )
    short = plan_of(
        QWEN3_8B, model={"max_length": 512}, recipe=SHORTEST, generator={"slots": None}
    ).worker
    assert (short.slots, short.slots_that_fit > 256) == (256, True)


def test_slots_that_are_left_out_hold_one_prompts_rollouts_even_where_they_do_not_fit() -> None:
    plan = plan_of(QWEN3_8B, gpu=32, generator={"slots": None})
    assert plan.worker.slots_that_fit < plan.worker.slots == 16
    (sentence,) = warnings(plan)
    assert sentence.startswith("generator.slots = null: the KV cache holds ")


def test_eight_bits_halve_kv_cache_and_layers() -> None:
    plain, small = (
        plan_of(QWEN3_8B, generator={"slots": 18, "engine": engine}).worker
        for engine in ({}, {"kv_cache_dtype": "fp8", "quantization": "fp8_per_channel"})
    )
    assert small.kv_of_slot(16) * 2 == plain.kv_of_slot(16)
    products = 36 * (4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 12_288)
    assert plain.weights - small.weights == products
    assert small.staging == plain.staging, "what travels is not quantised"


def test_a_larger_step_takes_more_memory() -> None:
    engine = {"max_num_batched_tokens": 16_384}
    plain, wide = (
        plan_of(QWEN3_8B, generator={"slots": 18, "engine": one}).worker for one in ({}, engine)
    )
    assert wide.activations > plain.activations
    assert wide.kv_bytes < plain.kv_bytes
