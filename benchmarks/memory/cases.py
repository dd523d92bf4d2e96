"""The models that are measured: random weights, 50 to 300 million parameters, three ways in which
memory is spent.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.trainer.learner.batch import TrainingSequence

SHARED: dict[str, Any] = {"head_dim": 64, "max_position_embeddings": 4096}
CASES: dict[str, dict[str, Any]] = {
    "50M": {
        "make": partial(
            Qwen3Config,
            **SHARED,
            vocab_size=32_768,
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=10,
            num_attention_heads=8,
            num_key_value_heads=4,
            tie_word_embeddings=True,
        ),
        "longest": 128,
        "tokens": 512,
        "recompute": False,
    },
    "125M-experts": {
        "make": partial(
            Qwen3MoeConfig,
            **SHARED,
            vocab_size=32_768,
            hidden_size=512,
            intermediate_size=1536,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=4,
            num_experts=16,
            num_experts_per_tok=2,
            moe_intermediate_size=512,
            norm_topk_prob=True,
            tie_word_embeddings=True,
        ),
        "longest": 128,
        "tokens": 256,
        "recompute": False,
    },
    "300M": {
        "make": partial(
            Qwen3Config,
            **SHARED,
            vocab_size=50_304,
            hidden_size=1024,
            intermediate_size=3072,
            num_hidden_layers=16,
            num_attention_heads=16,
            num_key_value_heads=8,
            tie_word_embeddings=False,
        ),
        "longest": 128,
        "tokens": 128,
        "recompute": True,
    },
}
PROMPT = 32
"""Tokens of every prompt."""


def write_model(name: str, folder: Path) -> None:
    """The model of a case, in a folder of its name."""
    AutoModelForCausalLM.from_config(CASES[name]["make"]()).save_pretrained(folder / name)


def run_config(name: str, model: Path, folder: Path) -> RunConfig:
    case = CASES[name]
    return parse_run_config(
        {
            "run": "memory",
            "folder": str(folder),
            "model": {"path": str(model), "dtype": "float32", "max_length": case["longest"]},
            "recipe": {
                "max_prompt_tokens": PROMPT,
                "max_completion_tokens": case["longest"] - PROMPT,
                "length_control": {"kind": "none"},
            },
            "trainer": {
                "tokens_per_micro_batch": case["tokens"],
                "logits_chunk_tokens": 256,
                "activation_checkpointing": case["recompute"],
                "threads": 1,
            },
        },
        source="benchmarks.memory",
    )


def sequences(name: str, ranks: int, *, micro_batches: int) -> list[TrainingSequence]:
    """The longest sequences that fill this many micro-batches on every rank."""
    rng = np.random.default_rng(0)
    case = CASES[name]
    vocabulary, length = case["make"]().vocab_size, case["longest"] - PROMPT
    return [
        TrainingSequence(
            prompt_token_ids=rng.integers(0, vocabulary, PROMPT).astype(np.int32),
            token_ids=rng.integers(0, vocabulary, length).astype(np.int32),
            generator_logprobs=rng.normal(-np.log(vocabulary), 0.5, length).astype(np.float32),
            loss_mask=np.ones(length, dtype=np.bool_),
            advantage=1.0 if index % 2 else -1.0,
            weight=1.0 / length,
        )
        for index in range(ranks * micro_batches * case["tokens"] // case["longest"])
    ]
