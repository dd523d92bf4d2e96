"""The trainer's recurrent layers against the recurrence itself, token by token in float64."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rollcast.config.model import Model
from rollcast.memory.recurrence import CHUNK_TOKENS
from rollcast.trainer.learner.architecture import skeleton
from rollcast.trainer.learner.recurrence import RULE
from testkit.tiny_model import make_architecture

TOKENS, HEADS, SIZE = 96, 2, 16
STRONGEST_DECAY = 16.0
"""Of one token, in nats: what a published model begins with."""
WEAK = 0.001
"""Share of these decays in the second chunk, whose tokens read what those before them wrote."""
ROUNDING = 1e-5
"""Relative to the largest output."""


def token_by_token(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor
) -> Tensor:
    """S <- exp(g) S; S <- S + beta (v - S k) k^T; o = S q (arXiv 2412.06464).

    One sequence [tokens, heads, size].
    """
    state = torch.zeros(HEADS, SIZE, SIZE, dtype=torch.float64)
    outputs = []
    for at in range(len(query)):
        state = state * decay[at].exp()[:, None, None]
        change = strength[at][:, None] * (value[at] - torch.einsum("hvk,hk->hv", state, key[at]))
        state = state + torch.einsum("hv,hk->hvk", change, key[at])
        outputs.append(torch.einsum("hvk,hk->hv", state, query[at]) * SIZE**-0.5)
    return torch.stack(outputs)


@pytest.mark.parametrize("architecture", ["qwen3_5", "qwen3_5_moe", "qwen3_next"])
def test_strong_decays_do_not_cost_the_tokens_after_them_precision(
    architecture: str, tmp_path: Path
) -> None:
    make_architecture(tmp_path, architecture)
    causal_lm = skeleton(Model(path=str(tmp_path)))
    rule: Any = getattr(sys.modules[type(causal_lm).__module__], RULE)
    largest = 0.0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        query, key, value = (
            torch.randn(TOKENS, HEADS, SIZE, generator=generator) for _ in range(3)
        )
        query, key = (
            torch.nn.functional.normalize(query, dim=-1),
            torch.nn.functional.normalize(key, dim=-1),
        )
        decay = -STRONGEST_DECAY * torch.rand(TOKENS, HEADS, generator=generator)
        decay[CHUNK_TOKENS : 2 * CHUNK_TOKENS] *= WEAK
        strength = torch.rand(TOKENS, HEADS, generator=generator)
        found, _ = rule(query[None], key[None], value[None], g=decay[None], beta=strength[None])
        exact = token_by_token(*(one.double() for one in (query, key, value, decay, strength)))
        largest = max(largest, float((found[0] - exact).abs().max() / exact.abs().max()))
    assert largest < ROUNDING
