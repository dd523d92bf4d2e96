"""In a step the host waits for the device once, at its end: a wait in between would leave the
device without work.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.trainer.learner.batch import denominator
from rollcast.trainer.learner.device_batch import pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_architecture
from tests.trainer.tiny_models import make_config, make_sequences

VALUES = {
    "aten::_local_scalar_dense",  # item, bool, float, int
    "aten::nonzero",
    "aten::masked_select",
    "aten::equal",
    "aten::_unique2",
    "aten::bincount",
    "aten::repeat_interleave",
}
"""Operations whose result, or its shape, depends on values: the host waits for them."""


class ValuesRead(TorchDispatchMode):
    """Counts operations for which the host waits on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = function.name().partition(".")[0]
        has_mask = name.startswith("aten::index") and any(
            isinstance(index, torch.Tensor) and index.dtype == torch.bool
            for index in (args[1] if isinstance(args[1], list | tuple) else [])
        )
        if name in VALUES or has_mask:
            self.counts[name] += 1
        return function(*args, **(kwargs or {}))


class ListsRead(TorchFunctionMode):
    """Counts tensors that become Python's numbers, which on a CPU calls no operation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function in (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu):
            self.counts[function.__name__] += 1
        return function(*args, **(kwargs or {}))


STEPS: dict[str, dict[str, Any]] = {
    "padded": {},
    "packed": {"trainer": {"packing": True}},
    "recomputed": {"trainer": {"activation_checkpointing": "selective"}},
    "sequence ratios": {"recipe": {"loss": {"kind": "gspo"}}},
    "truncated": {
        "recipe": {
            "loss": {"kind": "reinforce"},
            "corrections": {"truncation": {"over": "sequence"}, "mask": {}},
        }
    },
    "penalised": {"recipe": {"kl": {"coefficient": 0.01}, "entropy_bonus": 0.01}},
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("architecture", ["qwen3", "gemma2", "qwen3_moe"])
def test_the_host_waits_once_at_a_steps_end(
    ranks: Ranks, tmp_path: Path, architecture: str, kind: str
) -> None:
    if kind == "packed" and architecture == "gemma2":
        pytest.skip("the scores of its attention are capped, which packed rows do not know")
    make_architecture(tmp_path / "model", architecture)
    config = make_config(tmp_path / "model", tmp_path, **STEPS[kind])
    learner = LearnerGroup.build(config, ranks).learner
    sequences = make_sequences(1)
    micro_batches = [tuple(sequences[:3]), tuple(sequences[3:])]
    with ValuesRead() as values, ListsRead() as lists:
        stats = learner.update(micro_batches, denominator(sequences))
    assert stats.applied
    assert not values.counts
    # On a CPU each layer splits a packed row by the bounds of its sequences, which a GPU's kernel
    # reads itself.
    num_layers = int(learner.policy.causal_lm.config.num_hidden_layers)
    splits = num_layers * len(micro_batches) if kind == "packed" else 0
    assert lists.counts == {"tolist": 1 + splits}


class Copies(TorchDispatchMode):
    """Whether the host waits for each copy onto another device."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[bool] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if function.name().startswith("aten::_to_copy"):
            self.waits.append(not kwargs.get("non_blocking", False))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("lay_out", [pad_micro_batch, pack_micro_batch])
def test_the_host_does_not_wait_for_a_batch_to_be_copied(lay_out: Any) -> None:
    with Copies() as copies:
        lay_out(tuple(make_sequences(1)), torch.device("meta"))
    assert len(copies.waits) >= 8
    assert not any(copies.waits)
