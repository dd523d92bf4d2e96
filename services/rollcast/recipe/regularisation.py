"""Regularisation of the objective: distance to a reference policy, and entropy. Both are off in the study.

    J = ( sum_t w_t J_t  -  beta sum_t w_t k3_t  +  eta sum_t w_t H_t ) / sum_t w_t

w_t are the weights of the loss (`rollcast.recipe.aggregation`), so both are masked and averaged like it. As the loss
does, the functions return weighted sums BEFORE any reduction over micro-batches or ranks.
"""

import torch
from torch import Tensor

from rollcast.recipe.ratios import clamped, overflows


def weighted_kl(logprobs: Tensor, reference_logprobs: Tensor, weights: Tensor) -> Tensor:
    """Return the scalar sum_t w_t k3_t with k3 = r - 1 - log r, r = pi_ref(y_t) / pi_train(y_t).

    All [T]: log pi_train with gradient, log pi_ref without, w_t >= 0. k3 estimates KL(pi_train || pi_ref) of a token's
    distribution without bias if pi_train sampled the token (Schulman, "Approximating KL Divergence", 2020); it is
    never negative. Tokens with weight 0 reach neither value nor gradient. r is clamped if it overflows.
    """
    log_ratio = _log_ratio(logprobs, reference_logprobs, weights)
    log_ratio = clamped(log_ratio, weights)
    return (weights * (torch.expm1(log_ratio) - log_ratio)).sum()


def clamped_kl(logprobs: Tensor, reference_logprobs: Tensor, weights: Tensor) -> Tensor:
    """Return [T] bool, the tokens whose r was clamped because it overflows (`rollcast.recipe.ratios`)."""
    return overflows(_log_ratio(logprobs, reference_logprobs, weights), weights)


def _log_ratio(logprobs: Tensor, reference_logprobs: Tensor, weights: Tensor) -> Tensor:
    """Return log r [T]; 0 if the weight is 0."""
    zero = torch.zeros((), dtype=logprobs.dtype, device=logprobs.device)
    return torch.where(weights > 0, reference_logprobs - logprobs, zero)


def weighted_entropy(entropy: Tensor, weights: Tensor) -> Tensor:
    """Return the scalar sum_t w_t H_t; `entropy` [T] is of the whole distribution at each token, with gradient."""
    return (weights * entropy).sum()
