"""Inputs of a loss, drawn by a seed."""

from __future__ import annotations

import random

import torch

from rollcast.recipe.losses.loss import LossInputs


def random_inputs(seed: int, num_tokens: int = 24) -> LossInputs:
    """Tokens of up to four rollouts; about a third of them have no weight."""
    rng = random.Random(seed)
    generator = [-rng.expovariate(1.0) for _ in range(num_tokens)]
    rollout = sorted(rng.randrange(4) for _ in range(num_tokens))
    advantage = [rng.gauss(0, 1) for _ in range(4)]

    def tensor(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return LossInputs(
        logprobs=tensor([value + rng.gauss(0, 0.5) for value in generator]).requires_grad_(),
        generator_logprobs=tensor(generator),
        advantages=tensor([advantage[index] for index in rollout]),
        weights=tensor([rng.choice([0.0, 0.3, 1.7]) for _ in generator]),
        rollout=torch.tensor(rollout),
    )
