"""Corrections of a loss for tokens of another policy: truncated importance sampling and IcePop's
mask.

With rho_t = pi_train(y_t) / pi_gen(y_t) of `rollcast.recipe.losses` and the weights w_t of the
loss,

    mask        (IcePop, arXiv 2510.18855)   w_t -> w_t [a <= rho_t <= b]
    truncation  (TIS, of `reinforce`)        w_t -> w_t sg(min(rho_t, C))          over tokens
                                             w_t -> w_t sg(min(prod_s rho_s, C))   over the sequence

where s runs over the loss tokens of the sequence.

Both papers take pi_train and pi_gen at the same weights, those that sampled the token; here
pi_train has the trainer's weights of now, so with a large `recipe.schedule.max_staleness` staleness
too moves tokens out of the mask's range.

sg = stop-gradient. The mask comes first. A masked token has weight 0, so it is in no ratio of its
sequence either, neither here nor in GSPO's. The denominator stays sum_t w_t of the weights BEFORE
any correction: IcePop divides by the length of the whole answer, masked tokens included. KL penalty
and entropy bonus keep the weights before correction too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rollcast.recipe.losses.loss import LossInputs, log_ratio, no_token
from rollcast.recipe.ratios import rollout_sums

if TYPE_CHECKING:
    from rollcast.config.corrections import Corrections, RatioMask, RatioTruncation


@dataclass(frozen=True, slots=True)
class Corrected:
    """The tokens of a micro-batch after the corrections."""

    inputs: LossInputs
    """With the corrected weights."""
    masked: Tensor
    """[T] bool, the tokens that the mask left out."""
    truncated: Tensor
    """[T] bool, the tokens whose ratio the truncation lowered."""


def correct(corrections: Corrections, inputs: LossInputs) -> Corrected:
    """Return the inputs with corrected weights; the same inputs if all corrections are off."""
    masked = no_token(inputs)
    truncated = masked
    # First: a masked token is in no ratio of its sequence.
    if corrections.mask is not None:
        masked = outside(corrections.mask, inputs)
        inputs = replace(inputs, weights=torch.where(masked, 0.0, inputs.weights))
    if corrections.truncation is not None:
        ratio = sampling_ratio(corrections.truncation, inputs)
        bound = corrections.truncation.ratio_max
        truncated = (ratio > bound) & (inputs.weights > 0)
        inputs = replace(inputs, weights=inputs.weights * ratio.clamp(max=bound))
    return Corrected(inputs, masked, truncated)


def outside(mask: RatioMask, inputs: LossInputs) -> Tensor:
    """Return [T] bool, the loss tokens whose ratio is outside the range. A ratio that is not a
    number is not masked: a broken model must not look like one that only disagrees."""
    ratio = log_ratio(inputs).detach().exp()
    return ((ratio < mask.ratio_min) | (ratio > mask.ratio_max)) & (inputs.weights > 0)


def sampling_ratio(truncation: RatioTruncation, inputs: LossInputs) -> Tensor:
    """Return [T] the ratio before its truncation, without gradient; 1 if the weight is 0 and it is
    per token.
    """
    of_token = log_ratio(inputs).detach()
    if truncation.over == "token":
        return of_token.exp()
    return rollout_sums(of_token, inputs.rollout).exp()
