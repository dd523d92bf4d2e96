"""The learning rate of each update: linear warm-up, then constant (arXiv 2510.13786, A.3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rollcast.config.recipe import Optimizer, Recipe


def scaled_to_batch(recipe: Recipe) -> Optimizer:
    """Return the optimizer's settings with the rate of this batch: times sqrt(P G / 768) if the
    recipe says so.
    """
    optimizer = recipe.optimizer
    if not optimizer.scale_with_batch:
        return optimizer
    # Completions per step of the base recipe (A.3), whose learning rate is the one given
    factor = math.sqrt(recipe.prompts_per_step * recipe.rollouts_per_prompt / (48 * 16))
    return optimizer.model_copy(update={"learning_rate": optimizer.learning_rate * factor})


def learning_rate(settings: Optimizer, updates: int) -> float:
    """Return the rate of the update after `updates` others; the first already moves."""
    warmup = settings.warmup_steps
    return settings.learning_rate * min(1.0, (updates + 1) / warmup if warmup else 1.0)
