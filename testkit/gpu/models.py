"""Qwen3 with random weights at published shapes, and as the trainer shards it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rollcast.config.services import Recomputation, Trainer
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.model import Policy, shard_policy
from rollcast.trainer.learner.ranks import Ranks

SMALL = "small"
SHAPES = {
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072},
    "1.7b": {"hidden_size": 2048, "intermediate_size": 6144},
    "4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
    "28m": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 8_192,
    },
    SMALL: {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "vocab_size": 211,
    },
}
"""Settings of each size that differ from those that the published sizes share."""
SHARED = {
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
}


def qwen3(shape: str) -> Any:
    """The config of a shape in SHAPES."""
    return Qwen3Config(**(SHARED | SHAPES[shape]))


def random_model(shape: str, device: torch.device) -> Any:
    """A causal LM in float32 on `device`; the same numbers at each call for one kind of device."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Qwen3ForCausalLM(qwen3(shape))
    with torch.no_grad():
        # Factor of the last norm: a fresh model's distributions are nearly uniform, and errors do
        # not show in them
        model.model.norm.weight.mul_(5.0)
    return model


def shard_model(
    model: Any,
    ranks: Ranks,
    *,
    dtype: torch.dtype,
    recompute: Recomputation = False,
    compiler: str | None = None,
    packing: bool = False,
) -> Policy:
    """With the run file's defaults: FP32 head, its chunks of logits.

    Otherwise as `shard_policy`.
    """
    return shard_policy(
        model,
        mesh=ranks.mesh,
        dtype=dtype,
        lm_head="fp32",
        temperature=1.0,
        logits_chunk_tokens=Trainer().logits_chunk_tokens,
        activation_checkpointing=recompute,
        compiler=compiler,
        packing=packing,
    )


def random_sequence(
    rng: np.random.Generator,
    vocab: int,
    prompt: int,
    length: int,
    advantage: float,
    weight: float,
) -> TrainingSequence:
    """Random tokens, each as likely to its generator as if it were certain."""
    return TrainingSequence(
        prompt_token_ids=rng.integers(0, vocab, prompt).astype(np.int32),
        token_ids=rng.integers(0, vocab, length).astype(np.int32),
        generator_logprobs=np.zeros(length, dtype=np.float32),
        loss_mask=np.ones(length, dtype=np.bool_),
        advantage=advantage,
        weight=weight,
    )


def matrix_weights(config: Any) -> tuple[int, int]:
    """Entries of the matrices that a token of the body is multiplied with, and those of the output
    head.
    """
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    layer = config.hidden_size * (2 * query + 2 * key + 3 * config.intermediate_size)
    return config.num_hidden_layers * layer, config.vocab_size * config.hidden_size


def attention_flops(config: Any, length: int) -> int:
    """FLOPs of scores and weighted sums for one sequence, forward and backward, the causal half
    only.
    """
    width: int = config.num_attention_heads * config.head_dim
    return 6 * int(config.num_hidden_layers) * width * length**2
