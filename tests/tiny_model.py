"""A tiny random Qwen3 model with a character tokenizer, made on the spot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHARACTERS = "0123456789+-*/=() \n<>|abcdefghijklmnopqrstuvwxyz.,?!:;"


def make_tiny_model(folder: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2, max_length: int = 512) -> None:
    """Write config, float32 weights and tokenizer; about 0.15 million parameters by default."""
    import torch
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    vocabulary = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
    for character in CHARACTERS:
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=max_length,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=False,
        initializer_range=0.08,
    )
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        # Sharper than chance, and a text of some hundred tokens: logit 0 for its end among larger ones.
        model.lm_head.weight.mul_(4.0)
        model.lm_head.weight[config.eos_token_id] = 0.0
    model.save_pretrained(folder)


def perturbed(weights: dict[str, Any], seed: int, scale: float = 0.3) -> dict[str, Any]:
    """Weights of another version: every value times 1 + scale x noise."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        name: value * (1.0 + scale * torch.randn(value.shape, generator=generator)) for name, value in weights.items()
    }
