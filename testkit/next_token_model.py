"""A Qwen3 in which each token's successors depend on that token alone, made in a second without
training.

Its only layer adds nothing, so that a token's embedding decides the next one: a row of the head is
the sum of the embeddings of the tokens before. Training moves these probabilities as any other
model's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def write_next_token_model(
    folder: Path,
    tokenizer: Any,
    steps: Iterable[tuple[int, int, float]],
    *,
    hidden_size: int,
    max_length: int,
) -> None:
    """Write config and float32 weights. steps: a token, one that may follow it, and the logit of
    that.

    Other tokens have a logit of 0, or a fraction of these by chance: embeddings are random
    directions.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=hidden_size,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=max_length,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        embeddings = model.model.embed_tokens.weight
        embeddings.copy_(torch.nn.functional.normalize(torch.randn_like(embeddings)))
        head = model.lm_head.weight.copy_(torch.zeros_like(embeddings))
        for before, after, logit in steps:
            # The norm before the head gives an embedding the length of the square root of its size.
            head[after] += embeddings[before] * logit / hidden_size**0.5
    model.save_pretrained(folder)
