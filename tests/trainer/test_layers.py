"""Layers that are recomputed selectively, against the same layers as they were; and what is not
compiled.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.config.errors import UserError
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_architecture
from tests.trainer.layer_passes import passes, policy_of


class Products(TorchDispatchMode):
    """Counts matrix products that are really computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += function is torch.ops.aten.mm.default
        return function(*args, **(kwargs or {}))


def test_selective_recomputation_repeats_no_product(
    ranks: Ranks, model: Path, tmp_path: Path
) -> None:
    found = {}
    products: Counter[object] = Counter()
    for mode in (False, "selective", True):
        policy = policy_of(ranks, model, tmp_path, activation_checkpointing=mode)
        with Products() as counter:
            found[mode] = passes(policy, ranks, (3,))
        products[mode] = counter.count
    assert torch.equal(found["selective"], found[False])
    assert products["selective"] == products[False] < products[True]


def test_a_model_with_experts_is_not_compiled(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path, "qwen3_moe")
    with pytest.raises(
        UserError,
        match=r"^trainer\.compile = true: this model has weights of three .*; set it to false$",
    ):
        policy_of(ranks, tmp_path, tmp_path, compile=True)
