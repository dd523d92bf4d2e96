"""Learners with LoRA adapters, on one rank."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.tiny_models import make_config

LORA = {"rank": 4, "alpha": 12}


def build(
    ranks: Ranks,
    model: Path,
    folder: Path,
    *,
    dtype: str = "float32",
    lora: Mapping[str, Any] = LORA,
    **changes: Any,
) -> LearnerGroup:
    optimizer = {"learning_rate": 1e-2, "warmup_steps": 0, "epsilon": 1e-8, "max_grad_norm": 1e9}
    recipe = {"optimizer": optimizer, **changes}
    config = make_config(model, folder, model={"dtype": dtype, "lora": dict(lora)}, recipe=recipe)
    return LearnerGroup.build(config, ranks)
