"""Run as a process: the learner's own step under torch's MemTracker, which sees every tensor;
prints a line of JSON.

    python -m tests.memory.tracked_step FOLDER        the models are written there

Several ranks are torch's "fake" process group: this process is rank 0, and what others would send
is not there. Sizes and the order of what is gathered and reduced are the real ones.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import transformers
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.hooks import RemovableHandle

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.trainer.learner.batch import TrainingSequence, denominator, plan_micro_batches
from rollcast.trainer.learner.build import build_learner
from rollcast.trainer.learner.ranks import Ranks

LENGTH, TOKENS = 96, 384
SIZES: dict[str, Any] = {
    "vocab_size": 1999,
    "hidden_size": 96,
    "intermediate_size": 320,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "max_position_embeddings": 512,
}
MODELS = {
    "tied": transformers.Qwen3Config(**SIZES, num_hidden_layers=4, tie_word_embeddings=True),
    "untied": transformers.Qwen3Config(**SIZES, num_hidden_layers=4, tie_word_embeddings=False),
    "experts": transformers.Qwen3MoeConfig(
        **SIZES, num_hidden_layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=96
    ),
}
Case = tuple[int, str, str, bool | str, int | None]
CASES: tuple[Case, ...] = (
    (1, "untied", "bfloat16", True, None),
    (4, "tied", "float32", True, None),
    (4, "experts", "bfloat16", False, None),
    (1, "untied", "bfloat16", "selective", None),
    (4, "tied", "float32", "selective", None),
    (1, "untied", "bfloat16", True, 8),
    (4, "tied", "float32", False, 8),
)
"""Ranks, model, dtype of the forward pass, whether activations are computed again, and the rank of
adapters."""


def run_config(model: Path, case: Case) -> RunConfig:
    _, _, dtype, recompute, rank = case
    lora = None if rank is None else {"rank": rank, "alpha": rank}
    settings = {
        "run": "tracked",
        "folder": str(model),
        "model": {"path": str(model), "dtype": dtype, "max_length": LENGTH, "lora": lora},
        "recipe": {
            "max_prompt_tokens": 8,
            "max_completion_tokens": LENGTH - 8,
            "length_control": {"kind": "none"},
        },
        "trainer": {
            "tokens_per_micro_batch": TOKENS,
            "logits_chunk_tokens": 64,
            "activation_checkpointing": recompute,
        },
    }
    return parse_run_config(settings, source="tracked_step")


def sequences(count: int) -> list[TrainingSequence]:
    rng = np.random.default_rng(0)
    return [
        TrainingSequence(
            prompt_token_ids=rng.integers(0, 100, 8).astype(np.int32),
            token_ids=rng.integers(0, 100, LENGTH - 8).astype(np.int32),
            generator_logprobs=rng.normal(-5, 0.5, LENGTH - 8).astype(np.float32),
            loss_mask=np.ones(LENGTH - 8, dtype=np.bool_),
            advantage=1.0 if index % 2 else -1.0,
            weight=1.0,
        )
        for index in range(count)
    ]


def peak(config: RunConfig, ranks: Ranks) -> int:
    """Most bytes of tensors at once in a step of two full micro-batches, after one that made the
    moments.
    """
    learner = build_learner(config.model, config.recipe, config.trainer, ranks)
    (batches,) = plan_micro_batches(
        sequences(2 * TOKENS // LENGTH), world_size=1, max_tokens=TOKENS
    )
    total = denominator([sequence for batch in batches for sequence in batch])
    learner.update(batches, total)
    tracker = MemTracker()
    tracker.track_external(learner.policy, learner.optimizer)
    with tracker:
        learner.update(batches, total, tracker.reset_mod_stats)
    (device,) = (
        sizes
        for place, sizes in tracker.get_tracker_snapshot("peak").items()
        if place.type == "cpu"
    )
    return int(device["Total"])


def let_frozen_weights_be_tracked() -> None:
    """MemTracker asks every parameter for its gradient, and torch refuses that of a frozen one."""
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        setattr(torch.Tensor, name, partialmethod(tolerant, getattr(torch.Tensor, name)))


def tolerant(tensor: torch.Tensor, register: Callable[..., Any], hook: Any) -> Any:
    return register(tensor, hook) if tensor.requires_grad else RemovableHandle(OrderedDict())


def main(folder: Path) -> None:
    let_frozen_weights_be_tracked()
    for name, config in MODELS.items():
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder / name)
    found = []
    for case in CASES:
        world, model = case[:2]
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
        ranks = Ranks(
            0,
            world,
            torch.device("cpu"),
            init_device_mesh("cpu", (world,)),
            HashStore(),
            HashStore(),
        )
        found.append(peak(run_config(folder / model, case), ranks))
        dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
