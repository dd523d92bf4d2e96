"""Tiny random models with a character tokenizer, made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

CHARACTERS = "0123456789+-*/=() \n<>|abcdefghijklmnopqrstuvwxyz.,?!:;"
VOCABULARY = 64
ARCHITECTURES = ("qwen3", "qwen3_moe", "mixtral", "llama", "llama4", "gemma2", "granite", "cohere")


def make_tiny_model(
    folder: Path, *, seed: int = 0, hidden: int = 64, layers: int = 2, max_length: int = 512, head_dim: int = 32
) -> None:
    """Write config, float32 weights and tokenizer of a Qwen3; about 0.15 million parameters by default.

    vLLM serves heads of 32 numbers and more on a CPU: one with fewer is a model that it cannot serve.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=head_dim,
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


def make_architecture(folder: Path, architecture: str, *, seed: int = 0, max_length: int = 256) -> None:
    """Write a random model of one of ARCHITECTURES with its peculiar features switched on at sizes at which they
    matter."""
    import torch
    from transformers import AutoModelForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(_architecture_config(architecture, max_length), dtype=torch.float32)
    with torch.no_grad():
        # Layers that say more than the embeddings they are added to, which else would repeat the last token.
        for parameter in model.model.layers.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3.0)
        if not model.config.tie_word_embeddings:
            model.lm_head.weight.mul_(4.0)
    model.save_pretrained(folder)


def make_whole_llama4(folder: Path, **settings: Any) -> None:
    """This Llama 4 as its publisher stores it: the text model and a vision model in one checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM, Llama4Config, Llama4ForConditionalGeneration, Llama4VisionConfig

    text_folder = folder / "text"
    make_architecture(text_folder, "llama4", **settings)
    text = AutoModelForCausalLM.from_pretrained(text_folder, dtype=torch.float32)
    vision = Llama4VisionConfig(
        hidden_size=16,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
        vision_output_dim=16,
        projector_input_dim=16,
        projector_output_dim=16,
    )
    config = Llama4Config(text_config=text.config.to_dict(), vision_config=vision.to_dict())
    whole = Llama4ForConditionalGeneration._from_config(config, dtype=torch.float32)
    whole.language_model.load_state_dict(text.state_dict())
    whole.save_pretrained(folder)
    write_tokenizer(folder)
    shutil.rmtree(text_folder)


def _architecture_config(architecture: str, max_length: int) -> Any:
    from transformers import (
        CohereConfig,
        Gemma2Config,
        GraniteConfig,
        Llama4TextConfig,
        LlamaConfig,
        MixtralConfig,
        Qwen3Config,
        Qwen3MoeConfig,
    )

    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": max_length,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "initializer_range": 0.08,
    }
    if architecture == "qwen3":
        return Qwen3Config(**common, tie_word_embeddings=True)
    if architecture == "qwen3_moe":  # a dense layer among them; experts narrower than the CPU kernel's blocks
        experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
        return Qwen3MoeConfig(**common | {"num_hidden_layers": 3}, **experts, mlp_only_layers=[1])
    if architecture == "mixtral":  # stored as block_sparse_moe.experts.N.w1, w2, w3
        return MixtralConfig(**common | {"intermediate_size": 48}, num_local_experts=4, num_experts_per_tok=2)
    if architecture == "llama4":  # a dense layer, then experts and a shared one; a layer without rotary frequencies
        experts = {"num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2}
        layers = {"num_hidden_layers": 4, "intermediate_size_mlp": 96, "attention_chunk_size": max_length}
        return Llama4TextConfig(**common | layers, **experts, tie_word_embeddings=False)
    if architecture == "llama":  # long-context rope: frequencies are rescaled
        rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 1.0}
        rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": max_length // 4}
        return LlamaConfig(**common, rope_parameters=rope, tie_word_embeddings=False)
    if architecture == "granite":  # scaled embeddings, scores, branches and logits
        scales = {"embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
        return GraniteConfig(**common, **scales, logits_scaling=0.7, tie_word_embeddings=False)
    if architecture == "cohere":  # attention and feed-forward side by side behind one norm; tied; scaled logits
        return CohereConfig(**common, logit_scale=1.5)
    assert architecture == "gemma2"  # tied, scaled embeddings; caps on scores and logits; a window in every other layer
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 4.0}
    return Gemma2Config(**common, **caps, query_pre_attn_scalar=32, sliding_window=32)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of one token per character."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<bos>": 1, "<eos>": 2}
    for character in CHARACTERS:
        vocabulary[character] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)


def perturbed(weights: dict[str, Any], seed: int, scale: float = 0.3) -> dict[str, Any]:
    """Weights of another version: every value times 1 + scale x noise."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        name: value * (1.0 + scale * torch.randn(value.shape, generator=generator)) for name, value in weights.items()
    }
