"""config.json of models as they were published, as far as it gives shapes; their parameters by
their model cards.
"""

from __future__ import annotations

from typing import Any

_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "vocab_size": 151_936,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": False,
    "attention_bias": False,
}


def _qwen3(
    hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int = 8, **more: Any
) -> dict[str, Any]:
    return {
        **_QWEN3,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        **more,
    }


QWEN3_0_6B = _qwen3(1024, 3072, 28, 16, tie_word_embeddings=True)
QWEN3_1_7B = _qwen3(2048, 6144, 28, 16, tie_word_embeddings=True)
QWEN3_4B = _qwen3(2560, 9728, 36, 32, tie_word_embeddings=True)
QWEN3_8B = _qwen3(4096, 12_288, 36, 32)
QWEN3_32B = _qwen3(5120, 25_600, 64, 64)
QWEN3_30B_A3B = _qwen3(2048, 6144, 48, 32, 4, model_type="qwen3_moe", num_experts=128,
    num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1,
    mlp_only_layers=[])  # fmt: skip
LLAMA4_SCOUT = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16_384,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "attention_chunk_size": 8192,
        "max_position_embeddings": 10_485_760,
        "vocab_size": 202_048,
        "tie_word_embeddings": False,
    },
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32_768,
    "vocab_size": 32_000,
    "tie_word_embeddings": False,
}
QWEN3_NEXT_80B = {
    "model_type": "qwen3_next",
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 5120,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "max_position_embeddings": 262_144,
}
QWEN3_5_9B = {
    "model_type": "qwen3_5",
    "vision_config": {"depth": 27},
    "text_config": {
        "model_type": "qwen3_5_text",
        "vocab_size": 248_320,
        "hidden_size": 4096,
        "intermediate_size": 12_288,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 262_144,
    },
}
BILLIONS = {
    "Qwen3-1.7B": (QWEN3_1_7B, 1.7),
    "Qwen3-4B": (QWEN3_4B, 4.02),
    "Qwen3-8B": (QWEN3_8B, 8.19),
    "Qwen3-32B": (QWEN3_32B, 32.8),
    "Qwen3-30B-A3B": (QWEN3_30B_A3B, 30.5),
    "Llama-4-Scout, text": (LLAMA4_SCOUT, 107.8),
    "Mixtral-8x7B": (MIXTRAL_8X7B, 46.7),
    "Qwen3-Next-80B-A3B": (QWEN3_NEXT_80B, 80),
    "Qwen3.5-9B, text": (QWEN3_5_9B, 9),
}
"""Name -> config.json and billions of parameters."""
