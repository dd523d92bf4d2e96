"""Regularisation of the objective: distance to a reference policy, and entropy. Both are off in the
study.

    J = ( sum_t w_t J_t  -  beta sum_t w_t D_t  +  eta sum_t w_t H_t ) / sum_t w_t

w_t are the weights of the loss (`rollcast.recipe.aggregation`), so both are masked and averaged
like it. If the recipe's coefficients depend on the prompt's difficulty, beta and eta are multiplied
by the prompt's factors (`rollcast.recipe.difficulty`).

The distance is KL(pi_train || pi_ref) of a token's distribution. With x_t = log pi_train(y_t) - log
pi_ref(y_t) and rho_t = pi_train(y_t) / pi_gen(y_t) of tokens that pi_gen sampled,

    value of D_t       rho_t k_t, with k1 = x_t, k2 = x_t^2 / 2 or k3 = exp(-x_t) - 1 + x_t
    gradient of D_t    sg(rho_t x_t) grad log pi_train(y_t)                              of every
                       estimator

since grad KL = sum_y pi_train(y) x(y) grad log pi_train(y) + sum_y grad pi_train(y), and the second
sum is 0. Means of k1 and k3 over tokens are unbiased; k1 may be negative, k3 not, and k2 is biased
by a little and varies least (Schulman, "Approximating KL Divergence", 2020). Differentiating k3
itself gives KL(pi_ref || pi_train)'s gradient instead.
"""

from typing import Literal

import torch
from torch import Tensor

from rollcast.recipe.ratios import clamp_log_ratio, loss_token_log_ratio, overflows, reported_ratio

Estimator = Literal["k1", "k2", "k3"]


def kl_terms(
    logprobs: Tensor,
    generator_logprobs: Tensor,
    reference_logprobs: Tensor,
    weights: Tensor,
    *,
    estimator: Estimator = "k3",
) -> Tensor:
    """Return D_t [T]: its value is the estimator's, its gradient that of KL(pi_train || pi_ref).

    All [T]: log pi_train with gradient, log pi_gen and log pi_ref without, w_t >= 0. Tokens with
    weight 0 reach neither value nor gradient. A token whose rho overflows has a large value and no
    gradient.
    """
    distance = loss_token_log_ratio(logprobs.detach(), reference_logprobs, weights)
    log_ratio = loss_token_log_ratio(logprobs.detach(), generator_logprobs, weights)
    value = reported_ratio(log_ratio) * _estimate(distance.double(), estimator)
    # The root, so that sums over all tokens do not overflow.
    largest = torch.finfo(logprobs.dtype).max ** 0.5
    slope = torch.where(
        overflows(log_ratio, distance), 0.0, clamp_log_ratio(log_ratio, distance).exp() * distance
    )
    loss_token_logprobs = torch.where(weights > 0, logprobs, torch.zeros_like(weights))
    # The difference is 0, and its gradient is that of log pi_train.
    return value.clamp(-largest, largest).to(logprobs.dtype) + slope * (
        loss_token_logprobs - loss_token_logprobs.detach()
    )


def overflowing_kl_tokens(
    logprobs: Tensor, generator_logprobs: Tensor, reference_logprobs: Tensor, weights: Tensor
) -> Tensor:
    """Return [T] bool, the tokens without a KL gradient because their rho overflows
    (`rollcast.recipe.ratios`).
    """
    log_ratio = loss_token_log_ratio(logprobs, generator_logprobs, weights)
    return overflows(log_ratio, loss_token_log_ratio(logprobs, reference_logprobs, weights))


def _estimate(distance: Tensor, estimator: Estimator) -> Tensor:
    """Return k_t [T] of x_t, `distance` [T]."""
    if estimator == "k1":
        return distance
    if estimator == "k2":
        return distance.square() / 2
    return reported_ratio(-distance) - 1 + distance
