"""Plan of the memory planner for a measured learner."""

from __future__ import annotations

from rollcast.config.schema import RunConfig
from rollcast.config.services import Recomputation
from rollcast.memory.trainer import RankMemory
from testkit.gpu import models
from testkit.model_shapes import make_shape

NOT_A_STEP = ("publish", "checkpoint")
NOT_HERE = "staging"
"""A part that no measurement contains."""


def planned_bytes(shape: str, longest: int, *, recompute: Recomputation) -> int:
    """Planned bytes at the fullest moment of a step of one rank on a GPU; `longest`: tokens of the
    longest sequence.
    """
    config = RunConfig.model_validate(
        {
            "run": "gpu",
            "model": {"path": "none", "dtype": "bfloat16", "max_length": max(longest, 8)},
            "recipe": {"max_prompt_tokens": 1, "max_completion_tokens": max(longest, 8) - 1},
            "trainer": {"activation_checkpointing": recompute},
        }
    )
    rank = RankMemory(make_shape(models.qwen3(shape).to_dict()), config, "gpu", 0, 1)
    moments = [moment for moment in rank.moments() if moment.name not in NOT_A_STEP]
    return max(moment.total - moment.parts.get(NOT_HERE, 0) for moment in moments)
