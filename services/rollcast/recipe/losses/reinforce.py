"""REINFORCE."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rollcast.config.losses.reinforce import ReinforceLoss
from rollcast.recipe.losses.loss import LossInputs, no_token, zero_without_loss


@dataclass(frozen=True, slots=True)
class Reinforce:
    """REINFORCE: J_t = A_t log pi_train(y_t). No ratio: tokens of older weights bias its gradient,
    unless `rollcast.recipe.corrections` multiplies its weights by one. Not in the paper.

    With the leave-one-out baseline in A_t this is RLOO (arXiv 2402.14740).
    """

    def terms(self, inputs: LossInputs) -> Tensor:
        return inputs.advantages * zero_without_loss(inputs.logprobs, inputs)

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        return no_token(inputs)

    def clipped_tokens(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        """Return no token: there is no ratio."""
        return no_token(inputs), no_token(inputs)


def make(settings: ReinforceLoss) -> Reinforce:
    return Reinforce()
