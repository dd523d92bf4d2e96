"""Runs of the whole system on one card: their settings, and what their steps say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.gpu import first_token, models

RUN = "proof"
START_SECONDS = 200.0
"""Longest time from the command to its first steps: imports without bytecode, compilation, CUDA
graphs."""
STEPS_SECONDS = 120.0
"""Longest time for the steps between two events."""
STEPS_AFTER_AN_EVENT = 20
SERVED = {"head_dim": 32}
"""vLLM serves heads of 32 numbers and more on a CPU."""


def demo_settings(folder: Path, *, is_small: bool) -> dict[str, Any]:
    """Two generators and a trainer on the demo's task; tiny: on the task of `random_settings`."""
    if is_small:
        return random_settings(folder, is_small=True) | {"local": {"generators": 2}}
    model = str(ensure_base_model(BaseModel(), lambda _: None))
    settings = _settings(model, 128, 16, 56)
    settings["model"]["dtype"] = "float32"
    settings["tasks"] = {
        "dataset": {"kind": "arithmetic", "max_digits": 4, "size": 4_000},
        "evaluation": {
            "num_prompts": 128,
            "rollouts_per_prompt": 2,
            "every_steps": 20,
            "deadline_seconds": 60,
        },
    }
    return settings | {"local": {"generators": 2}}


def random_settings(
    folder: Path,
    *,
    is_small: bool,
    shape: str = "0.6b",
    longest: int = 512,
    end_stride: int = first_token.END_STRIDE,
) -> dict[str, Any]:
    """A model of random weights in `folder`, with its task: answers of about `end_stride` tokens,
    at most `longest`.
    """
    if is_small:
        shape, longest, end_stride = models.SMALL, 24, 16
    config = models.qwen3(shape)
    if is_small:
        config.update(SERVED)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).to(torch.float32 if is_small else torch.bfloat16)
    first_token.write_model(folder / "model", model, end_stride=end_stride)
    first_token.write_rows(folder / "rows.jsonl", config.vocab_size)
    settings = _settings(str(folder / "model"), 32 + longest, 16, longest)
    settings["model"]["dtype"] = "float32" if is_small else "bfloat16"
    code = f"{Path(first_token.__file__).resolve()}:grade"
    settings["tasks"] = {
        "dataset": {
            "kind": "jsonl",
            "name": "rows",
            "path": "rows.jsonl",
            "verifier": "first-token",
        },
        # Trusted: this part is about the card, and the sandbox has tests of its own.
        "verifiers": [{"kind": "function", "name": "first-token", "code": code, "trusted": True}],
        "evaluation": {
            "num_prompts": 32,
            "rollouts_per_prompt": 2,
            "every_steps": 20,
            "deadline_seconds": 60,
        },
    }
    return settings


def _settings(model: str, max_length: int, prompt: int, completion: int) -> dict[str, Any]:
    return {
        "run": RUN,
        "model": {"path": model, "max_length": max_length},
        "recipe": {
            "prompts_per_step": 16,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": prompt,
            "max_completion_tokens": completion,
            "length_control": {"kind": "none"},
            "no_positive_resampling": None,
            "optimizer": {"learning_rate": 1.0e-4, "warmup_steps": 0},
        },
        "budget": {"steps": 100_000},
        "local": {"generators": 1},
        "generator": {"slots": 128, "block_size": 32, "drain_seconds": 2},
        "trainer": {"tokens_per_micro_batch": 4_096, "checkpoint_every_steps": 1_000},
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "forecaster": {"http_port": 0},
    }


def step_figures(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of the steps from the run's own records; rewards of the first and
    of the last fifth.
    """
    fifth = max(1, len(steps) // 5)
    seconds = steps[-1]["at"] - steps[0]["at"]
    return {
        "steps": len(steps),
        "seconds_of_steps": round(seconds, 2),
        "trained_tokens_per_second": round(
            sum(step["trained_tokens"] for step in steps[1:]) / seconds, 1
        )
        if seconds
        else None,
        "update_seconds_median": median(step["update_seconds"] for step in steps),
        "reward_first_fifth": round(fmean(step["reward_mean"] for step in steps[:fifth]), 4),
        "reward_last_fifth": round(fmean(step["reward_mean"] for step in steps[-fifth:]), 4),
        "truncation_ratio_mean": round(fmean(step["truncation_ratio"] for step in steps), 4),
        "logprob_gap_mean": fmean(step["logprob_gap_mean"] for step in steps),
        "logprob_gap_max": max(step["logprob_gap_max"] for step in steps),
    }
