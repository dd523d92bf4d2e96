"""Ratios of probabilities: what a step reports about them, and how they stay numbers.

exp overflows above the logarithm of the largest number: 88.7 in float32, 709.8 in float64. An
infinite ratio makes NaN of an advantage of 0, and of the gradient that a clipped token does not
have (0 x infinity); one NaN costs the whole batch. Only for these tokens the log-ratio is clamped:
the clip decides as before, and without a clip such a token has a large value and no gradient. Every
other token keeps its value and its gradient.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

MAX_REPORTED_LOG_RATIO = math.log(torch.finfo(torch.float64).max) / 3
"""Nats, 236.6. Larger ones are reported as this: products of two such ratios, and their sums over
all tokens, are numbers. Only reports are bounded by it."""


def overflows(log_ratio: Tensor, factor: Tensor) -> Tensor:
    """Return [T] whether exp(log_ratio) [T], or its product with `factor` [T], overflows.

    NaN does not.
    """
    return torch.isinf(log_ratio.detach().exp() * factor.detach().abs().clamp(min=1))


def clamp_log_ratio(log_ratio: Tensor, factor: Tensor) -> Tensor:
    """Return [T] the log-ratio; if it overflows, the logarithm of the root of the largest number,
    without gradient.

    The root, so that neither a product nor a sum over all tokens overflows in turn. NaN stays NaN.
    """
    ceiling = math.log(torch.finfo(log_ratio.dtype).max) / 2
    return torch.where(overflows(log_ratio, factor), ceiling, log_ratio)


def loss_token_log_ratio(above: Tensor, below: Tensor, weights: Tensor) -> Tensor:
    """Return [T] the difference of two log-probabilities; 0 if the weight is 0, whatever they are
    there.
    """
    zero = torch.zeros((), dtype=above.dtype, device=above.device)
    return torch.where(weights > 0, above - below, zero)


def rollout_sums(values: Tensor, rollout: Tensor) -> Tensor:
    """Return [T] at each token the sum of `values` [T] over the tokens of its rollout, whose index
    is `rollout` [T]. The tokens of a rollout stand together.
    """
    # Numbered again from 0: then the tokens bound the number of rollouts, and the host need not
    # wait for the largest index.
    number = torch.zeros_like(rollout)
    number[1:] = (rollout[1:] != rollout[:-1]).cumsum(0)
    return torch.zeros_like(values).index_add(0, number, values)[number]


def reported_ratio(log_ratio: Tensor) -> Tensor:
    """Return [T] float64 the ratios of log-ratios [T], without gradient, bounded for reports.

    NaN stays NaN.
    """
    return log_ratio.detach().double().clamp(max=MAX_REPORTED_LOG_RATIO).exp()


class RatioSums(NamedTuple):
    """Sums over n tokens of rho = pi_train / pi_gen: float64 scalars on the device."""

    ratio: Tensor
    """sum rho."""
    squared_ratio: Tensor
    """sum rho^2. The effective sample size is (sum rho)^2 / sum rho^2 tokens, or that over n as a
    share."""
    divergence: Tensor
    """sum (rho - 1 - log rho). Its mean over tokens that pi_gen sampled is unbiased for KL(pi_gen
    || pi_train) of a token's distribution, and never negative (Schulman, "Approximating KL
    Divergence", 2020)."""


def ratio_sums(log_ratio: Tensor) -> RatioSums:
    """Return the sums over the loss tokens, whose log rho is given [n].

    No weights: every token counts once.
    """
    bounded = log_ratio.detach().double().clamp(max=MAX_REPORTED_LOG_RATIO)
    ratio = bounded.exp()
    # expm1, because exp(x) - 1 loses the digits of a small log-ratio.
    return RatioSums(ratio.sum(), ratio.square().sum(), (torch.expm1(bounded) - bounded).sum())
