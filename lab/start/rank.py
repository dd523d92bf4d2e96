"""One rank: reads the model, and says what that took. Started by `python -m lab.start`.

    python -m lab.start.rank whole|shard|checkpoint MODEL FOLDER

torchrun's environment variables name the rank.
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
from transformers.models.qwen3_moe import modeling_qwen3_moe

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.build import build_learner
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.wire.version import PolicyVersion

SAVES = 3
TOKENS = 512
"""Length of a rollout, its prompt included."""
PROMPT = 64
ROLLOUTS = 2
"""Number of rollouts of each rank in a step."""
MEGABYTE = 1e6


def resident(what: str) -> float:
    """VmRSS or VmHWM of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(
        int(line.split()[1]) * 1024 / MEGABYTE for line in lines if line.startswith(f"{what}:")
    )


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def run_config(model: str, folder: str) -> RunConfig:
    return parse_run_config(
        {
            "run": "start",
            "folder": folder,
            "model": {"path": model, "dtype": "float32", "max_length": TOKENS},
            "recipe": {
                "max_prompt_tokens": PROMPT,
                "max_completion_tokens": TOKENS - PROMPT,
                "length_control": {"kind": "none"},
            },
            "trainer": {"tokens_per_micro_batch": TOKENS, "logits_chunk_tokens": 256},
        },
        source="benchmark",
    )


def shard_of(ranks: Ranks, config: RunConfig) -> dict[str, float]:
    forget_peak()
    before, started = resident("VmRSS"), time.perf_counter()
    learner = build_learner(config.model, config.recipe, config.trainer, ranks)
    held = sum(weight.to_local().nbytes for _, weight in learner.policy.named_weights()) / MEGABYTE
    peak = resident("VmHWM") - before
    seconds = time.perf_counter() - started
    return {
        "shard_mb": held,
        "peak_mb": peak,
        "peak_over_shard_mb": peak - held,
        "seconds": seconds,
    }


def whole(config: RunConfig) -> dict[str, float]:
    forget_peak()
    before, started = resident("VmRSS"), time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(config.model.path, dtype=torch.float32)
    model(input_ids=torch.zeros(1, 4, dtype=torch.long))
    return {"peak_mb": resident("VmHWM") - before, "seconds": time.perf_counter() - started}


def checkpoint(ranks: Ranks, config: RunConfig) -> dict[str, Any]:
    """Seconds of steps and of copies at rank 0; the ratio of a saving step to its neighbours."""
    group = LearnerGroup.build(config, ranks)
    if ranks.rank > 0:
        assert group.follow() is TrainerEnding.FINISHED
        return {}

    def step() -> float:
        started = time.perf_counter()
        group.update([sequence_of(index) for index in range(ROLLOUTS * ranks.world_size)])
        return time.perf_counter() - started

    step()
    alone, saves = [step()], []
    for version in range(1, SAVES + 1):
        started = time.perf_counter()
        written = group.save(PolicyVersion(1, version), {})
        copying = time.perf_counter() - started
        beside, waited = step(), time.perf_counter()
        written.result()
        saves.append(
            {"copy": copying, "beside": beside, "left_to_wait": time.perf_counter() - waited}
        )
        alone.append(step())
    group.stop(TrainerEnding.FINISHED)
    ratios = [
        2 * (save["copy"] + save["beside"]) / sum(alone[index : index + 2])
        for index, save in enumerate(saves)
    ]
    return {"alone": alone, "saves": saves, "ratios": [round(ratio, 3) for ratio in ratios]}


def sequence_of(index: int) -> TrainingSequence:
    rng, length = np.random.default_rng(index), TOKENS - PROMPT
    return TrainingSequence(
        prompt_token_ids=rng.integers(0, 1_000, PROMPT).astype(np.int32),
        token_ids=rng.integers(0, 1_000, length).astype(np.int32),
        generator_logprobs=np.full(length, -11.0, dtype=np.float32),
        loss_mask=np.ones(length, dtype=np.bool_),
        advantage=1.0 if index % 2 else -1.0,
        weight=1.0 / length,
    )


def main(what: str, model: str, folder: str) -> None:
    assert modeling_qwen3, modeling_qwen3_moe  # Transformers imports them when a model is made
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
