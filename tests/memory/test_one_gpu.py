"""One GPU for trainer and generators: what is given to the engines leaves the trainer its part."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rollcast.memory.one_gpu import CONTEXT_BYTES, GRAPH_BYTES, fits, shared
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import refusals
from testkit.published_models import QWEN3_0_6B, QWEN3_8B
from tests.memory.plans import plan_of

GIB = 1 << 30
SHORT: dict[str, Any] = {
    "model": {"max_length": 1_536},
    "recipe": {
        "max_prompt_tokens": 512,
        "max_completion_tokens": 1_024,
        "length_control": {"kind": "none"},
    },
}


def on_one_gpu(
    model: dict[str, Any], gb: float, *, generators: int = 1, **groups: dict[str, Any]
) -> MemoryPlan:
    plan = plan_of(model, gpu=gb, ranks=1, **{**SHORT, **groups})
    return shared(replace(plan, generators=generators))


@pytest.mark.parametrize(("gb", "generators"), [(40, 1), (80, 1), (80, 3), (141, 2)])
def test_the_parts_fill_the_gpu_and_no_more(gb: float, generators: int) -> None:
    plan = on_one_gpu(
        QWEN3_0_6B, gb, generators=generators, trainer={"tokens_per_micro_batch": 4_096}
    )
    assert refusals(plan) == []
    trainer = plan.trainer[0].fullest.total + CONTEXT_BYTES
    engine = plan.config.generator.gpu_memory_utilization * gb * 1e9
    each = engine + plan.worker.staging + CONTEXT_BYTES + GRAPH_BYTES
    held = trainer + generators * each
    assert 0.94 * gb * 1e9 < held <= 0.95 * gb * 1e9, (
        "a twentieth is left, less the rounding of each share"
    )
    cache = plan.config.generator.gpu_kv_cache_gib
    assert cache is not None
    assert (
        engine - 0.1 * GIB <= plan.worker.weights + plan.worker.activations + cache * GIB <= engine
    )
    assert plan.config.weights.stage == "host"


def test_what_the_user_has_set_is_left_as_it_is() -> None:
    given = {"gpu_memory_utilization": 0.3, "gpu_kv_cache_gib": 10.0}
    plan = on_one_gpu(QWEN3_0_6B, 80, generator=given, weights={"stage": "device"})
    assert plan.config.generator.gpu_memory_utilization == 0.3
    assert plan.config.generator.gpu_kv_cache_gib == 10.0
    assert plan.config.weights.stage == "device"
    assert refusals(plan) == []


def test_a_share_that_leaves_too_little_for_the_trainer_is_one_sentence() -> None:
    plan = on_one_gpu(QWEN3_0_6B, 80, generator={"gpu_memory_utilization": 0.85})
    (said,) = refusals(plan)
    assert said.startswith("generator.gpu_memory_utilization = 0.85")
    assert re.search(r": one GPU has 80\.0 GB; the trainer needs [\d.]+ GB, .*; leave it out", said)


def test_the_mildest_change_with_which_both_fit_is_named() -> None:
    plan = on_one_gpu(QWEN3_0_6B, 24, trainer={"tokens_per_micro_batch": 32_768})
    (said,) = refusals(plan)
    found = re.match(
        r"trainer\.\w+ = \w+: one GPU has 24\.0 GB; the trainer needs [\d.]+ GB, each .* [\d.]+ GB",
        said,
    )
    assert found is not None, said
    remedies: dict[str, dict[str, Any]] = {
        "set it to true": {"activation_checkpointing": True},
        "set it to 1536, the longest rollout, and trainer.activation_checkpointing to true": {
            "tokens_per_micro_batch": 1_536,
            "activation_checkpointing": True,
        },
    }
    remedy = remedies[said.rpartition("; ")[2]]
    assert fits(on_one_gpu(QWEN3_0_6B, 24, trainer={"tokens_per_micro_batch": 32_768} | remedy))


def test_more_generators_than_fit_are_one_sentence() -> None:
    settings = {"tokens_per_micro_batch": 4_096, "activation_checkpointing": True}
    (said,) = refusals(on_one_gpu(QWEN3_0_6B, 24, generators=4, trainer=settings))
    assert said.startswith("local.generators = 4: one GPU has 24.0 GB")
    assert said.endswith("; set it to 1")
    assert refusals(on_one_gpu(QWEN3_0_6B, 24, trainer=settings)) == []


def test_a_model_that_fits_no_way_asks_for_another_gpu() -> None:
    (said,) = refusals(on_one_gpu(QWEN3_8B, 80))
    assert said.startswith("model.path = m: one GPU has 80.0 GB; the trainer needs ")
    assert said.endswith("use two GPUs, a larger one, or a smaller model")
