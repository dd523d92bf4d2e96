"""Coefficients of KL penalty and entropy bonus by the difficulty of the prompt. Not in the paper.

    KL         beta x 2 p            an easy prompt has little left to learn, so it stays near the
               reference
    entropy    eta x 2 (1 - p)       a hard prompt needs answers that were not seen yet

p is the prompt's pass rate in this batch: the mean reward of its rollouts that are trained on and
have a verdict, in [0, 1], before any length penalty. A prompt without such a rollout, as with a
teacher alone, has both factors 1. At p = 1/2 both coefficients are as the recipe gives them, and so
is their mean over prompts whose pass rates average 1/2. p comes from the batch alone, so a resumed
run needs no history.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CoefficientFactors:
    """Factors of the coefficients of a rollout's tokens; one entry per rollout of the batch."""

    kl: NDArray[np.float64]
    """[R]"""
    entropy: NDArray[np.float64]
    """[R]"""


def coefficient_factors(
    rewards: NDArray[np.float64], group: NDArray[np.int64], counts_for_rate: NDArray[np.bool_]
) -> CoefficientFactors:
    """Return the factors of R rollouts; 1 for prompts without a rollout that counts.

    `rewards` [R] are the verifier's, `group` [R] is the index of the prompt, `counts_for_rate` [R]
    marks the trained rollouts with a verdict.
    """
    # At one half both factors are 1.
    pass_rates = np.full(len(rewards), 0.5)
    if counts_for_rate.any():
        _, position = np.unique(group, return_inverse=True)
        counts = np.bincount(position, weights=counts_for_rate)
        totals = np.bincount(position, weights=np.where(counts_for_rate, rewards, 0.0))
        means = np.divide(totals, counts, out=np.full(len(counts), 0.5), where=counts > 0)
        pass_rates = means[position]
    return CoefficientFactors(kl=2 * pass_rates, entropy=2 * (1 - pass_rates))
