"""One small config of Transformers for every family whose memory is counted, with what is peculiar to it."""

from __future__ import annotations

from typing import Any

from transformers import (
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    Llama4TextConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Qwen2Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Qwen3NextConfig,
)

SMALL: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
HEAD = {"head_dim": 16}
EXPERTS = {"num_experts_per_tok": 2}
RECURRENT = {
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
SHARED = {"num_experts": 7, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 32}
CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "llama, tied": LlamaConfig(**SMALL, **HEAD, tie_word_embeddings=True),
    "mistral": MistralConfig(**SMALL, **HEAD, sliding_window=None),
    "granite": GraniteConfig(**SMALL),
    "qwen2": Qwen2Config(**SMALL),
    "qwen3": Qwen3Config(**SMALL, **HEAD, tie_word_embeddings=True),
    "qwen3, untied": Qwen3Config(**SMALL, **HEAD, attention_bias=True),
    "qwen3_moe": Qwen3MoeConfig(
        **SMALL, **HEAD, **EXPERTS, num_experts=7, moe_intermediate_size=24, mlp_only_layers=[1], decoder_sparse_step=1
    ),
    "qwen3_moe, every second": Qwen3MoeConfig(
        **SMALL, **HEAD, **EXPERTS, num_experts=7, moe_intermediate_size=24, decoder_sparse_step=2
    ),
    "mixtral": MixtralConfig(**SMALL, **EXPERTS, num_local_experts=5),
    "gemma2": Gemma2Config(**SMALL, **HEAD, sliding_window=32),
    "cohere": CohereConfig(**SMALL),
    "cohere, norms on heads": CohereConfig(**SMALL, use_qk_norm=True, tie_word_embeddings=False),
    "llama4_text": Llama4TextConfig(
        **SMALL, **HEAD, num_experts_per_tok=1, num_local_experts=5, intermediate_size_mlp=96, pad_token_id=0
    ),
    "llama4_text, every second": Llama4TextConfig(
        **SMALL,
        **HEAD,
        num_experts_per_tok=1,
        num_local_experts=5,
        intermediate_size_mlp=96,
        interleave_moe_layer_step=2,
        pad_token_id=0,
    ),
    "qwen3_next": Qwen3NextConfig(**SMALL, **HEAD, **EXPERTS, **RECURRENT, **SHARED),
    "qwen3_5_text": Qwen3_5TextConfig(**SMALL, **HEAD, **RECURRENT),
    "qwen3_5_moe_text": Qwen3_5MoeTextConfig(**SMALL, **HEAD, **EXPERTS, **RECURRENT, **SHARED),
}
