"""Forward and backward passes of a policy whose layers are treated in some way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.tiny_models import make_config, make_sequences


def policy_of(ranks: Ranks, model: Path, folder: Path, **trainer: object) -> Policy:
    return LearnerGroup.build(make_config(model, folder, trainer=trainer), ranks).learner.policy


def passes(policy: Policy, ranks: Ranks, seeds: tuple[int, ...]) -> Tensor:
    """Log-probs and gradients of one pass for each seed, whose lengths differ."""
    found = []
    for seed in seeds:
        batch = pad_micro_batch(tuple(make_sequences(seed, num_groups=1 + seed % 3)), ranks.device)
        logprobs, entropy = policy(batch.input_ids, batch.positions, batch.targets)
        (logprobs * torch.linspace(-1, 1, len(batch.targets)) + 0.1 * entropy).sum().backward()
        weights: list[Any] = [weight for _, weight in policy.named_weights()]
        found += [logprobs.detach(), *(weight.grad.full_tensor().flatten() for weight in weights)]
        policy.zero_grad()
    return torch.cat(found)
