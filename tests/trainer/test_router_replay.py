"""Replayed choices against routers written out by hand, in the model's own plain code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from rollcast.config.errors import UserError
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.router_replay import UNKNOWN_EXPERT
from testkit.tiny_model import make_architecture
from tests.trainer.slow_model import SMALL, slow_model
from tests.trainer.tiny_models import make_config, make_sequences, write_model

REPLAYED = {"router_replay": True}
EXPERTS = {
    "qwen3_moe": 8,
    "mixtral": 4,
    "llama4": 4,
    "glm4_moe": 8,
    "deepseek_v3": 8,
    "minimax_m2": 8,
}
CHOICES = {
    "qwen3_moe": 2,
    "mixtral": 2,
    "llama4": 1,
    "glm4_moe": 2,
    "deepseek_v3": 2,
    "minimax_m2": 2,
}
GROUPS = {"glm4_moe": 4, "deepseek_v3": 4, "minimax_m2": 1}
"""Groups of experts, of which the best two are searched, by sigmoid and bias."""
SCALE = {"glm4_moe": 1.5, "deepseek_v3": 1.5, "minimax_m2": 1.0}
LAYERS = 2
"""With routers, in each of them."""


def routed(architecture: str) -> list[TrainingSequence]:
    """Sequences whose tokens were sent to experts drawn at random, which no router would choose."""
    rng = np.random.default_rng(0)

    def drawn(sequence: TrainingSequence) -> TrainingSequence:
        shape = (sequence.num_tokens - 1, LAYERS)
        order = rng.permuted(
            np.broadcast_to(np.arange(EXPERTS[architecture]), (*shape, EXPERTS[architecture])),
            axis=-1,
        )
        return dataclasses.replace(
            sequence, routed_experts=order[..., : CHOICES[architecture]].astype(np.uint8)
        )

    return [drawn(sequence) for sequence in make_sequences(3)]


def scores_by_hand(
    architecture: str, router: Any, hidden: Tensor, chosen: Tensor
) -> tuple[Tensor, ...]:
    """What the architecture's router returns for these experts, from its published formula."""
    logits = hidden.reshape(-1, hidden.shape[-1]) @ router.weight.T
    if architecture == "llama4":  # sigmoid of the chosen logits, the others take no part
        taken = torch.zeros_like(logits).scatter(1, chosen, 1.0)
        return torch.sigmoid(logits) * taken, logits
    if architecture in GROUPS:  # the bias has no part in the weights
        weights = torch.sigmoid(logits).gather(1, chosen)
        return logits, SCALE[architecture] * weights / weights.sum(dim=-1, keepdim=True), chosen
    weights = torch.softmax(logits, dim=-1).gather(1, chosen)
    return logits, weights / weights.sum(dim=-1, keepdim=True), chosen


def own_choice(architecture: str, logits: Tensor, bias: Tensor | None) -> Tensor:
    """The experts that a router chooses by itself."""
    num_choices = CHOICES[architecture]
    if bias is None:
        return logits.argsort(dim=-1, descending=True)[:, :num_choices]
    chosen = []
    for scores in (torch.sigmoid(logits) + bias).tolist():
        size = len(scores) // GROUPS[architecture]
        groups = [range(start, start + size) for start in range(0, len(scores), size)]
        groups.sort(
            key=lambda group: sum(sorted(scores[expert] for expert in group)[-2:]), reverse=True
        )
        searched = [expert for group in groups[:2] for expert in group]
        chosen.append(sorted(searched, key=scores.__getitem__, reverse=True)[:num_choices])
    return torch.tensor(chosen)


def by_hand(folder: Path, architecture: str, experts: Tensor) -> Any:
    """The plain code with every router replaced.

    `experts` [B, S, layers, choices]; UNKNOWN_EXPERT: its own.
    """
    plain = slow_model(folder)
    routers = [module for module in plain.modules() if type(module).__name__.endswith("Router")]
    assert len(routers) == LAYERS

    def forward_of(layer: int, router: Any) -> Callable[..., tuple[Tensor, ...]]:
        def forward(hidden: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
            logits = hidden.reshape(-1, hidden.shape[-1]) @ router.weight.T
            bias = getattr(router, "e_score_correction_bias", bias)
            own = own_choice(architecture, logits, bias)
            told = experts[:, :, layer].flatten(0, 1).long()
            return scores_by_hand(
                architecture, router, hidden, torch.where(told == UNKNOWN_EXPERT, own, told)
            )

        return forward

    for layer, router in enumerate(routers):
        router.forward = forward_of(layer, router)
    return plain


@pytest.mark.parametrize("architecture", EXPERTS)
def test_logprobs_and_gradients_are_those_of_the_told_experts(
    architecture: str, ranks: Ranks, tmp_path: Path
) -> None:
    make_architecture(tmp_path, architecture)
    batch = pad_micro_batch(tuple(routed(architecture)), ranks.device)
    assert batch.routed_experts is not None
    upstream = torch.linspace(-1, 1, len(batch.targets))
    plain = by_hand(tmp_path, architecture, batch.routed_experts)
    rows = torch.log_softmax(
        plain(input_ids=batch.input_ids).logits.flatten(0, 1)[batch.positions], dim=1
    )
    expected = rows.gather(1, batch.targets[:, None])[:, 0]
    expected.mul(upstream).sum().backward()

    for recomputed in (False, True):
        trainer = {"activation_checkpointing": recomputed}
        config = make_config(tmp_path, tmp_path, recipe=REPLAYED, trainer=trainer)
        policy = LearnerGroup.build(config, ranks).learner.policy
        own, _ = policy(batch.input_ids, batch.positions, batch.targets)
        assert (own - expected).abs().max() > 0.1, (
            "other experts make no difference: nothing is compared"
        )
        found, _ = policy(batch.input_ids, batch.positions, batch.targets, batch.routed_experts)
        torch.testing.assert_close(found, expected.detach(), rtol=0, atol=2e-5)
        found.mul(upstream).sum().backward()
        sharded: dict[str, Any] = dict(policy.named_weights())
        for name, weight in plain.named_parameters():
            assert weight.grad is not None
            assert weight.grad.any(), name
            scale = float(weight.grad.abs().max())
            torch.testing.assert_close(
                sharded[name].grad.full_tensor(), weight.grad, rtol=1e-3, atol=1e-4 * scale
            )


def test_an_update_replays_what_its_rollouts_say(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path, "qwen3_moe")
    group = LearnerGroup.build(make_config(tmp_path, tmp_path, recipe=REPLAYED), ranks)
    batch = pad_micro_batch(tuple(routed("qwen3_moe")), ranks.device)
    with torch.no_grad():
        logprobs, _ = group.learner.policy(
            batch.input_ids, batch.positions, batch.targets, batch.routed_experts
        )
    said = iter(logprobs.numpy())
    sequences = [
        dataclasses.replace(
            sequence,
            generator_logprobs=np.array(
                [next(said) if kept else 0.0 for kept in sequence.loss_mask], np.float32
            ),
        )
        for sequence in routed("qwen3_moe")
    ]
    assert group.update(sequences).logprob_gap_max < 1e-5


def test_what_is_told_and_not_asked_for_is_not_replayed(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path, "mixtral")
    policy = LearnerGroup.build(make_config(tmp_path, tmp_path), ranks).learner.policy
    batch = pad_micro_batch(tuple(routed("mixtral")), ranks.device)
    with torch.no_grad():
        told, _ = policy(batch.input_ids, batch.positions, batch.targets, batch.routed_experts)
        own, _ = policy(batch.input_ids, batch.positions, batch.targets)
    assert torch.equal(told, own)


def test_a_model_without_routers_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    with pytest.raises(
        UserError,
        match=r"has no router that recipe\.router_replay knows; set recipe\.router_replay to",
    ):
        LearnerGroup.build(make_config(folder, tmp_path, recipe=REPLAYED), ranks)


def test_routers_that_weigh_by_masked_scores_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    """They would give no weight to an expert of another group than their own choice."""
    groups = {
        "n_group": 2,
        "topk_group": 1,
        "topk_method": "group_limited_greedy",
        "n_routed_experts": 4,
    }
    experts = {"num_experts_per_tok": 2, "first_k_dense_replace": 0, "moe_intermediate_size": 16}
    heads = {
        "q_lora_rank": 8,
        "kv_lora_rank": 8,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    }
    config = transformers.DeepseekV2Config(
        **SMALL | {"num_key_value_heads": 4}, **groups, **experts, **heads
    )
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(
        tmp_path
    )
    with pytest.raises(
        UserError, match=r"scores of its own groups alone; set recipe\.router_replay to false"
    ):
        LearnerGroup.build(make_config(tmp_path, tmp_path, recipe=REPLAYED), ranks)
