"""Filters: which rollouts form the effective batch (arXiv 2510.13786, sections 3.2 and A.15).

Filtered rollouts are dropped from the batch, which becomes smaller. If the recipe refills batches, as DAPO does, a
group that this filter would empty never reaches a batch: see `rollcast.trainer.control.intake`.
"""

import numpy as np
from numpy.typing import NDArray


def varied(rewards: NDArray[np.float64], group: NDArray[np.int64], kept: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of the `kept` [R] rollouts stay: those of prompts whose kept rewards are not all equal.

    The zero-variance filter: `rewards` are the verifier's, without a length penalty, so that a prompt whose answers are
    all right goes, however long they are. The paper writes it for rewards 0 and 1,
    0 < mean_j r_j < 1; equality says the same for every scale. A prompt with one kept rollout goes too.
    """
    if not len(rewards):
        return kept.copy()
    _, position = np.unique(group, return_inverse=True)
    num_groups = int(position.max()) + 1
    lowest = np.full(num_groups, np.inf)
    highest = np.full(num_groups, -np.inf)
    np.minimum.at(lowest, position[kept], rewards[kept])
    np.maximum.at(highest, position[kept], rewards[kept])
    return kept & (lowest < highest)[position]
