"""Aggregation: the weight of each token in the batch's objective (arXiv 2510.13786, section 3.2).

Every aggregation is one weighted mean over the loss tokens of the effective batch, J = sum_t w_t
J_t / sum_t w_t:

    prompt   each prompt equal    w_t = 1 / (loss tokens of the prompt's rollouts)    sum_t w_t =
             number of prompts
    sample   each rollout equal   w_t = 1 / (loss tokens of the rollout)              sum_t w_t =
             number of rollouts
    token    each token equal     w_t = 1                                             sum_t w_t =
             number of loss tokens

An episode (a rollout of several turns) counts once: its loss tokens are those of all its training
sequences, so that neither turns nor branches raise its weight, and sum_t w_t stays the number of
prompts or rollouts.

Only loss tokens count (sampled ones, without the forced phrase and what an environment gave) of
rollouts that are kept (neither truncated nor filtered). A prompt or rollout without loss tokens
does not count at all. The paper does not say whether the phrase counts in |y|; here it does not,
neither in numerator nor in denominator.

The weights need the whole batch: they are computed once when the batch is formed and travel with
the rollouts. All tokens of a rollout have the same weight, so one number per rollout is enough.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregation = Literal["prompt", "sample", "token"]


def rollout_weights(
    aggregation: Aggregation, group: NDArray[np.int64], loss_tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return w [R], the weight of each loss token of every rollout; 0 for a rollout without loss
    tokens.

    `group` [R] is the index of the rollout's prompt in the batch (any non-negative integers),
    `loss_tokens` [R] the number of tokens that carry loss, 0 for a rollout that is not kept.
    """
    if aggregation == "prompt":
        _, position = np.unique(group, return_inverse=True)
        totals = np.bincount(position, weights=loss_tokens)[position] if len(group) else loss_tokens
    elif aggregation == "sample":
        totals = loss_tokens
    else:
        totals = np.ones_like(loss_tokens)
    return np.where(loss_tokens > 0, 1.0 / np.maximum(totals, 1), 0.0)
