"""The clipped surrogate of DAPO, GRPO and the base of the ablations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rollcast.config.losses.clipped_surrogate import BaseLoss, DapoLoss, GrpoLoss
from rollcast.recipe.losses.loss import LossInputs, log_ratio, zero_without_loss
from rollcast.recipe.ratios import clamp_log_ratio, overflows


@dataclass(frozen=True, slots=True)
class ClippedSurrogate:
    """Eq (3): J_t = min(rho_t A_t, clip(rho_t, 1 - clip_low, 1 + clip_high) A_t).

    With sample aggregation this is Eq (3), the base; with prompt aggregation Eq (8), DAPO. With
    sample aggregation and clip_low = clip_high it is Eq (7), GRPO.
    """

    clip_low: float
    clip_high: float

    def terms(self, inputs: LossInputs) -> Tensor:
        return zero_without_loss(
            clipped_surrogate(log_ratio(inputs), inputs.advantages, self.clip_low, self.clip_high),
            inputs,
        )

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        return overflows(log_ratio(inputs), inputs.advantages) & (inputs.weights > 0)

    def clipped_tokens(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        return clipped_away(log_ratio(inputs), inputs, self.clip_low, self.clip_high)


def make(settings: DapoLoss | GrpoLoss | BaseLoss) -> ClippedSurrogate:
    if isinstance(settings, GrpoLoss):
        return ClippedSurrogate(clip_low=settings.clip, clip_high=settings.clip)
    return ClippedSurrogate(clip_low=settings.clip_low, clip_high=settings.clip_high)


def clipped_surrogate(
    log_ratio: Tensor, advantages: Tensor, clip_low: float, clip_high: float
) -> Tensor:
    ratio = clamp_log_ratio(log_ratio, advantages).exp()
    return torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)


def clipped_away(
    log_ratio: Tensor, inputs: LossInputs, clip_low: float, clip_high: float
) -> tuple[Tensor, Tensor]:
    """Return two [T] bool, the tokens whose gradient the clip removes: those with a ratio below its
    range and A < 0, and those with one above it and A > 0."""
    ratio = log_ratio.detach().exp()
    has_loss = inputs.weights > 0
    low = (ratio < 1 - clip_low) & (inputs.advantages < 0) & has_loss
    high = (ratio > 1 + clip_high) & (inputs.advantages > 0) & has_loss
    return low, high
