"""One rank: reads the model, and says what that took. Started by `python -m benchmarks.start`.

python -m benchmarks.start.rank whole|shard|checkpoint MODEL FOLDER        with torchrun's environment variables
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM
from transformers.models.qwen3 import modeling_qwen3

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.wire.version import PolicyVersion

STEPS = 3
"""Before the first checkpoint, and after the beginning of each."""
TOKENS = 32
MEGABYTE = 1e6


def resident(what: str) -> float:
    """VmRSS or VmHWM of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / MEGABYTE for line in lines if line.startswith(f"{what}:"))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def run_config(model: str, folder: str) -> RunConfig:
    return parse_run_config(
        {
            "run": "start",
            "folder": folder,
            "model": {"path": model, "dtype": "float32", "max_length": 512},
            "recipe": {"max_prompt_tokens": 32, "max_completion_tokens": TOKENS, "length_control": {"kind": "none"}},
            "trainer": {"tokens_per_micro_batch": 2 * TOKENS, "logits_chunk_tokens": 64},
        },
        source="benchmark",
    )


def shard_of(ranks: Ranks, config: RunConfig) -> dict[str, float]:
    forget_peak()
    before, started = resident("VmRSS"), time.perf_counter()
    group = LearnerGroup.build(config, ranks)
    held = sum(weight.to_local().nbytes for _, weight in group.learner.policy.named_weights()) / MEGABYTE
    peak = resident("VmHWM") - before
    seconds = time.perf_counter() - started
    return {"shard_mb": held, "peak_mb": peak, "peak_over_shard_mb": peak - held, "seconds": seconds}


def whole(config: RunConfig) -> dict[str, float]:
    forget_peak()
    before, started = resident("VmRSS"), time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(config.model.path, dtype=torch.float32)
    model(input_ids=torch.zeros(1, 4, dtype=torch.long))
    return {"peak_mb": resident("VmHWM") - before, "seconds": time.perf_counter() - started}


def checkpoint(ranks: Ranks, config: RunConfig) -> dict[str, Any]:
    """Seconds of steps: alone, of the step with the copy for a checkpoint in it, of those beside its writing."""
    group = LearnerGroup.build(config, ranks)
    ids = np.arange(TOKENS, dtype=np.int32)
    sequence = TrainingSequence(
        prompt_token_ids=ids[:8],
        token_ids=ids,
        generator_logprobs=np.full(TOKENS, -11.0, dtype=np.float32),
        loss_mask=np.ones(TOKENS, dtype=np.bool_),
        advantage=1.0,
        weight=1.0,
    )

    def step() -> float:
        started = time.perf_counter()
        group.update([sequence, sequence])
        return time.perf_counter() - started

    step()
    alone = [step() for _ in range(STEPS)]
    saves = []
    for version in (1, 2):
        started = time.perf_counter()
        written = group.save(PolicyVersion(1, version), {})
        copying = time.perf_counter() - started
        beside = [step() for _ in range(STEPS)]
        waited = time.perf_counter()
        written.result()
        saves.append({"copy": copying, "beside": beside, "left_to_wait": time.perf_counter() - waited})
    return {"alone": alone, "saves": saves}


def main(what: str, model: str, folder: str) -> None:
    assert modeling_qwen3
    ranks = join_ranks(timeout_seconds=600, threads=1)
    config = run_config(model, folder)
    if what == "shard":
        found: dict[str, Any] = shard_of(ranks, config)
    else:
        found = whole(config) if what == "whole" else checkpoint(ranks, config)
    (Path(folder) / f"rank-{ranks.rank}.json").write_text(json.dumps(found))
    ranks.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
