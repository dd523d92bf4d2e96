"""What a run with adapters holds."""

from __future__ import annotations

from typing import Any

import pytest

from rollcast.memory.one_gpu import fits, least_of_each, rest_of_each, shared
from rollcast.memory.plan import MemoryPlan
from rollcast.memory.verdict import refusals
from testkit.published_models import QWEN3_8B
from tests.memory.plans import plan_of

LORA = {"lora": {"rank": 32}}
SHORT: dict[str, Any] = {
    "recipe": {
        "max_prompt_tokens": 1_024,
        "max_completion_tokens": 7_168,
        "length_control": {"kind": "none"},
    },
    "trainer": {"tokens_per_micro_batch": 8_192, "activation_checkpointing": True},
}


def on_one_gpu(lora: dict[str, Any]) -> MemoryPlan:
    return shared(plan_of(QWEN3_8B, gpu=80, ranks=1, **SHORT, model={"max_length": 8_192, **lora}))


def test_an_8b_run_fits_one_80_gb_card_with_its_generator_with_adapters_alone() -> None:
    plan = on_one_gpu(LORA)
    assert refusals(plan) == []
    assert fits(plan)
    assert rest_of_each(plan) > least_of_each(plan)
    whole = on_one_gpu({})
    assert not fits(whole)
    assert "use two GPUs, a larger one, or a smaller model" in refusals(whole)[0]


def test_masters_moments_and_versions_are_those_of_the_adapters() -> None:
    plan = plan_of(QWEN3_8B, ranks=2, **SHORT, model=LORA)
    rank = plan.trainer[0]
    adapters = 2 * 43_646_976  # PEFT's count of Qwen3-8B at rank 32, all-linear
    assert rank.version == 2 * adapters
    parts = rank.fullest.parts
    assert parts["optimizer"] == pytest.approx(8 * adapters / 2, rel=0.01)
    assert parts["weights"] == pytest.approx(
        (2 * plan.model.num_parameters + 4 * adapters) / 2, rel=0.01
    )
    assert plan.worker.weights == pytest.approx(
        2 * (plan.model.num_parameters + 2 * adapters), rel=0.01
    )
    assert rank.checkpoint == pytest.approx(12 * adapters / 2, rel=0.01)


def test_the_base_is_its_own_reference() -> None:
    kl = {"recipe": {**SHORT["recipe"], "kl": {"coefficient": 0.1}}}
    same = plan_of(QWEN3_8B, **{**SHORT, **kl}, model=LORA).trainer[0]
    assert "reference" not in same.fullest.parts
    other = {"recipe": {**SHORT["recipe"], "kl": {"coefficient": 0.1, "reference": "other"}}}
    assert (
        plan_of(QWEN3_8B, **{**SHORT, **other}, model=LORA).trainer[0].fullest.parts["reference"]
        > 0
    )
