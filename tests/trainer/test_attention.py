"""The kernel of attention, and packed sequences against padded ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.config.errors import UserError
from rollcast.trainer.learner.attention import bounded_flash, packed_attention
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    packed_tokens,
    padded_tokens,
    plan_micro_batches,
)
from rollcast.trainer.learner.device_batch import pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_architecture
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences

PACKED_ARCHITECTURES = ("qwen3", "qwen3_moe", "mixtral", "llama", "granite", "cohere")


class Kernels(TorchDispatchMode):
    """Names of the attention kernels that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if "attention" in (name := str(function)) and "backward" not in name:
            self.names.add(name)
        return function(*args, **(kwargs or {}))


def group_of(ranks: Ranks, model: Path, folder: Path, **trainer: object) -> LearnerGroup:
    return LearnerGroup.build(make_config(model, folder, trainer=trainer), ranks)


def test_the_kernel_that_is_named_is_the_one_that_runs(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = group_of(ranks, untied_model, tmp_path)
    assert group.learner.attention_kernel == "flash"
    with Kernels() as seen:
        group.update(make_sequences(0))
    assert seen.names == {"aten._scaled_dot_product_flash_attention_for_cpu.default"}


def test_a_preferred_kernel_is_named_only_if_it_can_run(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """A CPU has no cuDNN: the others stay."""
    group = group_of(ranks, untied_model, tmp_path, attention="cudnn")
    assert group.learner.attention_kernel in ("flash", "math")
    assert group.update(make_sequences(0)).applied


def test_attention_of_a_capped_model_is_named(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path, "gemma2")
    assert group_of(ranks, tmp_path, tmp_path).learner.attention_kernel == "eager"


@pytest.mark.parametrize("architecture", PACKED_ARCHITECTURES)
def test_packed_sequences_have_the_logprobs_and_gradients_of_padded_ones(
    ranks: Ranks, tmp_path: Path, architecture: str
) -> None:
    make_architecture(tmp_path, architecture)
    sequences = tuple(make_sequences(3))
    found = []
    for packing in (False, True):
        policy = group_of(ranks, tmp_path, tmp_path, packing=packing).learner.policy
        batch = (pack_micro_batch if packing else pad_micro_batch)(sequences, ranks.device)
        upstream = torch.linspace(-1, 1, len(batch.targets))
        logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)
        (logprobs * upstream).sum().backward()
        weights: dict[str, Any] = dict(policy.named_weights())
        found.append(
            (
                logprobs.detach(),
                {name: weight.grad.full_tensor() for name, weight in weights.items()},
            )
        )
    (expected, expected_gradients), (packed, packed_gradients) = found
    torch.testing.assert_close(packed, expected, rtol=0, atol=2e-5)
    for name, gradient in expected_gradients.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(packed_gradients[name], gradient, rtol=1e-3, atol=1e-4 * scale)


SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "sliding_window": 4,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "use_sliding_window": True,
    "max_window_layers": 2,
}


@pytest.mark.parametrize(
    ("model_type", "settings"),
    [("mistral", SHAPE), ("qwen2_moe", SHAPE | EXPERTS)],
    ids=["mistral", "qwen2_moe"],
)
def test_packed_sequences_keep_the_window(
    ranks: Ranks, tmp_path: Path, model_type: str, settings: dict[str, Any]
) -> None:
    """Mistral's attention passes it; that of Qwen2-MoE has it in the mask alone."""
    config = transformers.AutoConfig.for_model(model_type, **settings)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)  # so that attention is far from uniform
    model.save_pretrained(tmp_path)
    found = []
    for packing in (False, True):
        policy = group_of(ranks, tmp_path, tmp_path, packing=packing).learner.policy
        batch = (pack_micro_batch if packing else pad_micro_batch)(
            tuple(make_sequences(3)), ranks.device
        )
        found.append(
            policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)[
                0
            ].detach()
        )
    torch.testing.assert_close(*found, rtol=0, atol=2e-5)


def test_a_mask_of_the_models_own_is_refused() -> None:
    states = torch.zeros(1, 2, 6, 8)
    with pytest.raises(
        UserError, match=r"^trainer\.packing = true: .* mask or scores of its own; set it to false$"
    ):
        packed_attention(
            None,
            states,
            states,
            states,
            torch.zeros(1, 1, 6, 6),
            cu_seq_lens_q=torch.tensor([0, 6]),
            max_length_q=6,
        )


@pytest.mark.parametrize("recomputed", [False, "selective", True])
def test_an_update_of_packed_sequences_is_that_of_padded_ones(
    ranks: Ranks, untied_model: Path, tmp_path: Path, recomputed: object
) -> None:
    padded = group_of(ranks, untied_model, tmp_path)
    packed = group_of(
        ranks, untied_model, tmp_path, packing=True, activation_checkpointing=recomputed
    )
    assert packed.learner.attention_kernel == "one sequence at a time"
    expected, found = padded.update(make_sequences(5)), packed.update(make_sequences(5))
    assert found.loss == pytest.approx(expected.loss, rel=1e-5, abs=1e-6)
    assert found.grad_norm == pytest.approx(expected.grad_norm, rel=1e-5)
    assert found.tokens == expected.tokens
    assert found.micro_batches < expected.micro_batches, "no padding was saved"


def test_a_rank_without_packed_sequences_takes_part(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    batch = pack_micro_batch((), ranks.device)
    assert (tuple(batch.input_ids.shape), len(batch.targets)) == ((1, 1), 0)
    policy = group_of(ranks, untied_model, tmp_path, packing=True).learner.policy
    logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)
    logprobs.sum().backward()
    assert len(logprobs) == 0


@pytest.mark.parametrize(
    ("architecture", "reason"),
    [
        ("gemma2", "attention cannot be replaced"),
        ("llama4", "layers of the kind chunked_attention"),
    ],
)
def test_a_model_whose_attention_is_another_is_not_packed(
    ranks: Ranks, tmp_path: Path, architecture: str, reason: str
) -> None:
    make_architecture(tmp_path, architecture)
    with pytest.raises(
        UserError, match=rf"^trainer\.packing = true: .*{reason}.*; set it to false$"
    ):
        group_of(ranks, tmp_path, tmp_path, packing=True)


def test_packed_micro_batches_are_full_of_tokens() -> None:
    sequences: list[TrainingSequence] = make_sequences(1, num_groups=12)
    (packed,) = plan_micro_batches(sequences, world_size=1, max_tokens=120, packing=True)
    assert sum(map(packed_tokens, packed)) == sum(one.num_tokens for one in sequences)
    assert all(packed_tokens(one) <= 120 for one in packed)
    assert max(map(padded_tokens, packed)) > 120, "with padding so many would not fit"


def test_the_call_of_flash_attention_is_one_that_torch_takes() -> None:
    """Tensors without memory: arguments and shapes are checked, forward and backward.

    A GPU alone computes numbers.
    """
    with FakeTensorMode():
        heads = (4, 2, 2)
        query, key, value = (
            torch.empty(1, count, 10, 8, dtype=torch.bfloat16, requires_grad=True)
            for count in heads
        )
        bounds = torch.empty(3, dtype=torch.int32)
        attended = bounded_flash(query, key, value, bounds, 6, scaling=0.3, window=4)
        assert tuple(attended.shape) == (1, 10, 4, 8)
        attended.sum().backward()
        gradients = (one.grad for one in (query, key, value))
        assert [None if one is None else tuple(one.shape) for one in gradients] == [
            (1, n, 10, 8) for n in heads
        ]
