"""Seconds of an optimizer step on the trainer's GPUs."""

import math
from dataclasses import dataclass

from rollcast.memory.plan import MemoryPlan
from rollcast.memory.recurrence import FLOAT32_BYTES
from rollcast.throughput.assumptions import Assumptions, flops_utilization
from rollcast.throughput.card import Card
from rollcast.throughput.lengths import CutLengths
from rollcast.throughput.model_work import (
    active_weights,
    forward_flops,
    has_experts,
    training_flops,
)

OPTIMIZER_BYTES_PER_WEIGHT = 7 * FLOAT32_BYTES
"""AdamW reads weight, gradient and both moments, and writes weight and moments."""


@dataclass(frozen=True, slots=True)
class TrainerRate:
    plan: MemoryPlan
    card: Card
    lengths: CutLengths
    prompt_tokens: float
    assumptions: Assumptions

    @property
    def utilization(self) -> float:
        """MFU."""
        configured_utilization = self.assumptions.flops_utilization
        if configured_utilization is not None:
            return configured_utilization
        model = self.plan.model
        # What "selective" recomputes costs hardly any of the FLOPs.
        recomputed = self.plan.config.trainer.activation_checkpointing is True
        return flops_utilization(
            active_weights(model), recomputed=recomputed, has_experts=has_experts(model)
        )

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the weights: those of the first copy send."""
        return self.plan.trainer[0].ranks

    @property
    def tokens_per_step(self) -> float:
        """Tokens of the trained rollouts of a step, with their prompts."""
        recipe = self.plan.config.recipe
        filtered = recipe.zero_variance_filter and recipe.uses_reward and not recipe.refill_filtered
        trained = 1.0 - (self.assumptions.filtered_share if filtered else 0.0)
        rollouts = recipe.prompts_per_step * recipe.rollouts_per_prompt
        return trained * rollouts * (self.lengths.mean + self.prompt_tokens)

    @property
    def tokens_per_second(self) -> float:
        """Rate of all ranks together, with the forward passes of a teacher that they hold."""
        position = self.lengths.mean_position + self.prompt_tokens
        has_adapters = self.plan.config.model.lora is not None
        flops = training_flops(self.plan.model, position, has_adapters=has_adapters)
        if self.plan.teacher is not None:
            flops += forward_flops(self.plan.teacher, position)
        return self.plan.ranks * self.card.flops * self.utilization / flops

    @property
    def update_seconds(self) -> float:
        """Forward and backward passes, then the optimizer."""
        rows = (
            sum(math.prod(shape) for _, shape in self.plan.trainer[0].trained_weights) / self.shards
        )
        optimizer = (
            rows
            * OPTIMIZER_BYTES_PER_WEIGHT
            / (self.card.bandwidth * self.assumptions.bandwidth_share)
        )
        return self.tokens_per_step / self.tokens_per_second + optimizer

    @property
    def sending_seconds(self) -> float:
        """Time from the first byte of a version to the last; all lanes send at the same time."""
        return self.plan.trainer[0].version / (self.shards * self.assumptions.lane_bytes_per_second)

    @property
    def publish_seconds(self) -> float:
        """How long the trainer may not begin the next update. One rank sends while it computes."""
        return 0.0 if self.plan.ranks == 1 else self.sending_seconds
