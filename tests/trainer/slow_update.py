"""The regularised objective of a batch, token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rollcast.trainer.learner.batch import TrainingSequence

RATIO_MAX = 5.0
"""CISPO's default."""


def slow_loss(
    model: nn.Module,
    reference: nn.Module,
    sequences: list[TrainingSequence],
    *,
    kl: float,
    entropy: float,
) -> tuple[Tensor, float]:
    """-J and the mean estimate (k1) of the KL, token by token, from the whole rows of logits."""
    objective, distance = torch.zeros((), dtype=torch.float64), 0.0
    weight_sum = 0.0
    for s in sequences:
        prompt, tokens = s.prompt_token_ids.tolist(), s.token_ids.tolist()
        ids = torch.tensor([prompt + tokens])
        rows = torch.log_softmax(model(input_ids=ids).logits[0].double(), 1)
        with torch.no_grad():
            reference_rows = torch.log_softmax(reference(input_ids=ids).logits[0].double(), 1)
        for position, token in enumerate(tokens):
            if not s.loss_mask[position]:
                continue
            row = rows[len(prompt) + position - 1]
            logprob = row[token]
            ratio = math.exp(logprob.item() - float(s.generator_logprobs[position]))
            gap = logprob.item() - reference_rows[len(prompt) + position - 1, token].item()
            penalty = ratio * gap * (1 + logprob - logprob.item())
            own_entropy = -(row.exp() * row).sum()
            term = min(ratio, RATIO_MAX) * s.advantage * logprob
            term = term - kl * s.kl_factor * penalty + entropy * s.entropy_factor * own_entropy
            objective = objective + s.weight * term
            distance += s.weight * ratio * gap
            weight_sum += s.weight
    return -objective / weight_sum, distance / weight_sum
