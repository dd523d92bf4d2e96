"""GSPO."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rollcast.config.losses.gspo import GspoLoss
from rollcast.recipe.losses.clipped_surrogate import ClippedSurrogate
from rollcast.recipe.losses.loss import LossInputs, log_ratio
from rollcast.recipe.ratios import rollout_sums


@dataclass(frozen=True, slots=True)
class Gspo(ClippedSurrogate):
    """GSPO: Eq (3) with one ratio per rollout, rho_i = (pi_train(y_i) / pi_gen(y_i)) ^ (1 / |y_i|),
    over loss tokens.

    ScaleRL prints rho_i without the exponent, but its clip scale (3e-3 / 4e-3, A.17.3) only makes
    sense with it, as in the GSPO paper (arXiv 2507.18071); `length_normalised` False is the printed
    form. An episode has one ratio for each of its training sequences, over the sampled tokens of
    that sequence. So all tokens of a rollout are clipped, or none.
    """

    length_normalised: bool = True

    def log_ratio(self, inputs: LossInputs) -> Tensor:
        """Return [T] log rho_i of each token's rollout."""
        token_log_ratio = log_ratio(inputs)
        totals = rollout_sums(token_log_ratio, inputs.rollout)
        if self.length_normalised:
            has_loss = (inputs.weights > 0).to(token_log_ratio.dtype)
            lengths = rollout_sums(has_loss, inputs.rollout)
            # A rollout without loss tokens has the sum 0, and must not become 0 / 0.
            totals = totals / lengths.clamp(min=1)
        return totals


def make(settings: GspoLoss) -> Gspo:
    return Gspo(settings.clip_low, settings.clip_high, length_normalised=settings.length_normalised)
