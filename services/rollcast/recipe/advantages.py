"""Advantages of rollouts from their rewards (arXiv 2510.13786, sections 2 and 3.2).

    batch           A_i = (r_i - mean_j r_j) / (std over the batch of all r - mean + eps)
                    ScaleRL
    prompt          A_i = (r_i - mean_j r_j) / (std_j r_j + eps)                              GRPO,
                    Eq (5)
    none            A_i =  r_i - mean_j r_j                                                   Dr.
                    GRPO
    leave_one_out   A_i =  r_i - mean_{j != i} r_j
                    REINFORCE leave-one-out

j runs over the kept rollouts of the same prompt: truncated ones and filtered prompts are left out
before. Standard deviations divide by the number of values, not one less; the paper gives neither
that nor eps.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Normalisation = Literal["batch", "prompt", "none", "leave_one_out"]

STD_EPSILON = 1e-6
"""Reward: added to a standard deviation, so that equal rewards give advantages of 0 and not of 0 /
0. The paper gives no value."""


def advantages(
    normalisation: Normalisation, rewards: NDArray[np.float64], group: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return A [R] of the kept rollouts with `rewards` [R] and prompt index `group` [R] (any
    non-negative integers).
    """
    if not len(rewards):
        return np.zeros(0)
    _, position = np.unique(group, return_inverse=True)
    size = np.bincount(position)[position]
    centred: NDArray[np.float64] = rewards - np.bincount(position, weights=rewards)[position] / size
    if normalisation == "leave_one_out":
        # r_i - mean_{j != i} r_j = (r_i - mean_j r_j) n / (n - 1). A single rollout has no other to
        # be compared with.
        return np.where(size > 1, centred * size / np.maximum(size - 1, 1), 0.0)
    if normalisation == "prompt":
        deviation = np.sqrt(np.bincount(position, weights=centred**2)[position] / size)
        return centred / (deviation + STD_EPSILON)
    if normalisation == "batch":
        # The advantages of each prompt add up to 0, so their mean over the batch is 0 too.
        return centred / (float(np.sqrt(np.mean(centred**2))) + STD_EPSILON)
    return centred
