"""Ratios of probabilities that stay numbers.

exp overflows above the logarithm of the largest number: 88.7 in float32, 709.8 in float64. An infinite ratio makes NaN
of an advantage of 0, and of the gradient that a clipped token does not have (0 x infinity); one NaN costs the whole
batch. Only for these tokens the log-ratio is clamped: the clip decides as before, and without a clip such a token has a
large value and no gradient. Every other token keeps its value and its gradient.
"""

import math

import torch
from torch import Tensor


def overflows(log_ratio: Tensor, factor: Tensor) -> Tensor:
    """Return [T] whether exp(log_ratio) [T], or its product with `factor` [T], overflows. NaN does not."""
    return torch.isinf(log_ratio.detach().exp() * factor.detach().abs().clamp(min=1))


def clamped(log_ratio: Tensor, factor: Tensor) -> Tensor:
    """Return [T] the log-ratio; if it overflows, the logarithm of the root of the largest number, without gradient.

    The root, so that neither a product nor a sum over all tokens overflows in turn. NaN stays NaN.
    """
    ceiling = math.log(torch.finfo(log_ratio.dtype).max) / 2
    return torch.where(overflows(log_ratio, factor), ceiling, log_ratio)
