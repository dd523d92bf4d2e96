"""What a learner is."""

from __future__ import annotations

from torch import Tensor

from rollcast.trainer.learner.group import LearnerGroup


def state(group: LearnerGroup) -> list[Tensor]:
    """Everything an update depends on."""
    optimizer = group.learner.optimizer
    moments = [
        optimizer.state[w][name]
        for w in group.learner.weights
        for name in ("exp_avg", "exp_avg_sq")
    ]
    return [tensor.full_tensor().clone() for tensor in [*group.learner.weights, *moments]]
