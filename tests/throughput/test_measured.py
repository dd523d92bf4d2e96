"""The prediction against what one NVIDIA H200 did (torch 2.11, vLLM 0.32): tokens per second of
both sides.

The trainer's MFU is itself one of those figures, so that this compares the counted operations; the
engine's own time per step was set by the figure below.
"""

from __future__ import annotations

import pytest

from rollcast.throughput.assumptions import FLOPS_UTILIZATION_MEASURED, Assumptions
from rollcast.throughput.balance import predict
from rollcast.throughput.card import card_named
from rollcast.throughput.model_work import training_flops
from testkit.model_shapes import make_shape
from testkit.published_models import QWEN3_0_6B, QWEN3_1_7B, QWEN3_4B
from tests.memory.plans import plan_of

H200 = card_named("H200")
MEASURED_TRAINER = {
    "1.7b": (QWEN3_1_7B, 0.263, 67_000, 4_149, 23_800),
    "4b": (QWEN3_4B, 0.298, 93_000, 16_384, 8_250),
}
"""Shape -> model, MFU, tokens, longest rollout with its prompt, tokens per second."""
MEASURED_DECODE = 19_400
"""Tokens per second of Qwen3-0.6B, random weights, 128 slots; every completion was cut at 512
tokens."""


@pytest.mark.parametrize("name", MEASURED_TRAINER)
def test_the_counted_operations_give_the_measured_tokens_per_second(name: str) -> None:
    learner = pytest.importorskip("testkit.gpu.learner")
    model, utilization, tokens, longest, measured = MEASURED_TRAINER[name]
    lengths = [one.num_tokens for one in learner.rollouts(name, is_small=False)]
    assert sum(lengths) == pytest.approx(tokens, rel=0.02)
    assert max(lengths) == longest
    position = sum(length**2 for length in lengths) / (2 * sum(lengths))
    predicted = utilization * H200.flops / training_flops(make_shape(model), position)
    assert predicted == pytest.approx(measured, rel=0.03)
    assert utilization in {share for _, _, share in FLOPS_UTILIZATION_MEASURED}


def test_the_engine_decodes_as_fast_as_it_was_measured() -> None:
    recipe = {
        "max_prompt_tokens": 64,
        "max_completion_tokens": 512,
        "length_control": {"kind": "none"},
    }
    generator = {"slots": 128, "gpu_memory_utilization": 0.25}
    plan = plan_of(
        QWEN3_0_6B, gpu=141, ranks=1, model={"max_length": 576}, recipe=recipe, generator=generator
    )
    balance = predict(plan, H200, 1, Assumptions(mean_tokens=486, log_length_spread=0.3))
    assert balance.generator.tokens_per_second == pytest.approx(MEASURED_DECODE, rel=0.05)
    assert balance.generator.kv_share < 0.9, "nothing was preempted"
