"""One small base model and one set of settings for all system tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.local.demo.base_model import BaseModel, ensure_base_model

# Good enough to be right sometimes, so that groups have variance; a quarter of the demo's training.
SMALL = BaseModel(max_digits=2, noise=0.25, steps=260)


@pytest.fixture(scope="session")
def model_folder() -> Path:
    return ensure_base_model(SMALL, lambda share: None)


@pytest.fixture
def settings(model_folder: Path) -> dict[str, Any]:
    return small_settings(model_folder)


def small_settings(model_folder: Path) -> dict[str, Any]:
    """A small run: 8 prompts x 8 rollouts a step, k = 4.

    A higher learning rate unlearns the task in 60 steps.
    """
    return {
        "run": "small",
        "model": {"path": str(model_folder), "dtype": "float32", "max_length": 96},
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 2, "size": 800},
            "evaluation": {"num_prompts": 32, "rollouts_per_prompt": 4, "every_steps": 5},
        },
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": 4},
            "length_control": {"kind": "none"},
            "prompts_per_step": 8,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 64,
            "optimizer": {"learning_rate": 5e-5, "warmup_steps": 2},
        },
        "budget": {"steps": 12},
        "generator": {"slots": 64, "block_size": 32, "drain_seconds": 3},
        "trainer": {"tokens_per_micro_batch": 4096, "threads": 1, "checkpoint_every_steps": 5},
        "weights": {"heartbeat_timeout_seconds": 6, "bucket_timeout_seconds": 3},
    }
