"""One small config of Transformers for every family whose memory is counted, with what is peculiar
to it.
"""

from __future__ import annotations

from typing import Any

import transformers

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
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": dict(model_type="llama", **SMALL, attention_bias=True, mlp_bias=True),
    "llama, tied": dict(model_type="llama", **SMALL, **HEAD, tie_word_embeddings=True),
    "mistral": dict(model_type="mistral", **SMALL, **HEAD, sliding_window=None),
    "granite": dict(model_type="granite", **SMALL),
    "qwen2": dict(model_type="qwen2", **SMALL),
    "qwen3": dict(model_type="qwen3", **SMALL, **HEAD, tie_word_embeddings=True),
    "qwen3, untied": dict(model_type="qwen3", **SMALL, **HEAD, attention_bias=True),
    "qwen3_moe": dict(
        model_type="qwen3_moe",
        **SMALL,
        **HEAD,
        **EXPERTS,
        num_experts=7,
        moe_intermediate_size=24,
        mlp_only_layers=[1],
        decoder_sparse_step=1,
    ),
    "qwen3_moe, every second": dict(
        model_type="qwen3_moe",
        **SMALL,
        **HEAD,
        **EXPERTS,
        num_experts=7,
        moe_intermediate_size=24,
        decoder_sparse_step=2,
    ),
    "mixtral": dict(model_type="mixtral", **SMALL, **EXPERTS, num_local_experts=5),
    "gemma2": dict(model_type="gemma2", **SMALL, **HEAD, sliding_window=32),
    "cohere": dict(model_type="cohere", **SMALL),
    "cohere, norms on heads": dict(
        model_type="cohere", **SMALL, use_qk_norm=True, tie_word_embeddings=False
    ),
    "llama4_text": dict(
        model_type="llama4_text",
        **SMALL,
        **HEAD,
        num_experts_per_tok=1,
        num_local_experts=5,
        intermediate_size_mlp=96,
        pad_token_id=0,
    ),
    "llama4_text, every second": dict(
        model_type="llama4_text",
        **SMALL,
        **HEAD,
        num_experts_per_tok=1,
        num_local_experts=5,
        intermediate_size_mlp=96,
        interleave_moe_layer_step=2,
        pad_token_id=0,
    ),
    "qwen3_next": dict(model_type="qwen3_next", **SMALL, **HEAD, **EXPERTS, **RECURRENT, **SHARED),
    "qwen3_5_text": dict(model_type="qwen3_5_text", **SMALL, **HEAD, **RECURRENT),
    "qwen3_5_moe_text": dict(
        model_type="qwen3_5_moe_text", **SMALL, **HEAD, **EXPERTS, **RECURRENT, **SHARED
    ),
}


def make_config(name: str) -> Any:
    return transformers.AutoConfig.for_model(**SETTINGS[name])
