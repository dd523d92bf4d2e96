"""CISPO."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rollcast.config.losses.cispo import CispoLoss
from rollcast.recipe.losses.loss import LossInputs, log_ratio, no_token, zero_without_loss


@dataclass(frozen=True, slots=True)
class Cispo:
    """CISPO, Eq (4): J_t = sg(min(rho_t, ratio_max)) A_t log pi_train(y_t); sg = stop-gradient.

    No token loses its gradient.
    """

    ratio_max: float

    def terms(self, inputs: LossInputs) -> Tensor:
        ratio = log_ratio(inputs).detach().exp().clamp(max=self.ratio_max)
        return ratio * inputs.advantages * zero_without_loss(inputs.logprobs, inputs)

    def overflowing_tokens(self, inputs: LossInputs) -> Tensor:
        """Return no token: a ratio is clipped, however large, and has no gradient of its own."""
        return no_token(inputs)

    def clipped_tokens(self, inputs: LossInputs) -> tuple[Tensor, Tensor]:
        """Above `ratio_max`; nothing is clipped below."""
        is_above = log_ratio(inputs).detach().exp() > self.ratio_max
        return no_token(inputs), is_above & (inputs.weights > 0)


def make(settings: CispoLoss) -> Cispo:
    return Cispo(ratio_max=settings.ratio_max)
