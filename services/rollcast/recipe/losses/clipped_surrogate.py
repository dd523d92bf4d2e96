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

    def log_ratio(self, inputs: LossInputs) -> Tensor:
        """Return [T] log rho of each token; 0 if the weight is 0."""
        return log_ratio(inputs)

    def terms(self, inputs: LossInputs) -> Tensor:
        ratio = clamp_log_ratio(self.log_ratio(inputs), inputs.advantages).exp()
        clipped = ratio.clamp(1 - self.clip_low, 1 + self.clip_high)
        return zero_without_loss(
            torch.minimum(ratio * inputs.advantages, clipped * inputs.advantages), inputs
        )

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        return overflows(self.log_ratio(inputs), inputs.advantages) & (inputs.weights > 0)

    def clipped_tokens(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        """Return two [T] bool, the tokens whose gradient the clip removes: those with a ratio below
        its range and A < 0, and those with one above it and A > 0."""
        ratio = self.log_ratio(inputs).detach().exp()
        has_loss = inputs.weights > 0
        low = (ratio < 1 - self.clip_low) & (inputs.advantages < 0) & has_loss
        high = (ratio > 1 + self.clip_high) & (inputs.advantages > 0) & has_loss
        return low, high


def make(settings: DapoLoss | GrpoLoss | BaseLoss) -> ClippedSurrogate:
    if isinstance(settings, GrpoLoss):
        return ClippedSurrogate(clip_low=settings.clip, clip_high=settings.clip)
    return ClippedSurrogate(clip_low=settings.clip_low, clip_high=settings.clip_high)
