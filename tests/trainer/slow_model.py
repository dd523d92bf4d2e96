"""Small settings of any architecture, and the model as plain products and loops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from testkit.tiny_model import VOCABULARY

SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


def slow_model(folder: Path) -> Any:
    """Attention and experts as plain products and loops."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    ).eval()
