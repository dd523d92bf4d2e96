"""Layers that are compiled or recomputed selectively, against the same layers as they were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.config.errors import UserError
from rollcast.trainer.learner import reading
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_architecture
from tests.trainer.tiny_models import make_config, make_sequences

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]
"""Both are of torch's own code while it compiles."""
ROUNDING = 3e-6
"""Relative; float32 sums in another order."""
VECTOR_ROUNDING = 1e-5
"""The compiler's code also has exponentials and roots of its own: 4e-6 was seen."""


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles as in a run, except that the graphs are executed by torch's own kernels: no C++ compiler is needed."""
    monkeypatch.setattr(reading, "COMPILER", "aot_eager_decomp_partition")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


class Products(TorchDispatchMode):
    """Counts matrix products that are really computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += function is torch.ops.aten.mm.default
        return function(*args, **(kwargs or {}))


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


@pytest.mark.usefixtures("traced")
def test_compiled_layers_compute_the_same_and_are_compiled_once(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Takes some seconds: forward and backward are traced, and tracing is what is tested."""
    seeds = (2, 5)
    expected = passes(policy_of(ranks, untied_model, tmp_path), ranks, seeds)
    policy = policy_of(ranks, untied_model, tmp_path, compile=True, activation_checkpointing="selective")
    found = passes(policy, ranks, seeds)
    assert (found - expected).norm() / expected.norm() < ROUNDING
    compilations = counters["stats"]["unique_graphs"]
    assert compilations == 3, "one for all layers, two for the head"
    assert not counters["graph_break"]
    passes(policy, ranks, (8, 10))
    assert counters["stats"]["unique_graphs"] == compilations, "another length was compiled again"


def test_code_of_the_real_compiler_computes_the_same(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    expected = passes(policy_of(ranks, untied_model, tmp_path), ranks, (2,))
    found = passes(policy_of(ranks, untied_model, tmp_path, compile=True), ranks, (2,))
    torch._dynamo.reset()
    assert (found - expected).norm() / expected.norm() < VECTOR_ROUNDING


def test_selective_recomputation_repeats_no_product(ranks: Ranks, model: Path, tmp_path: Path) -> None:
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
        UserError, match=r"^trainer\.compile = true: this model has weights of three .*; set it to false$"
    ):
        policy_of(ranks, tmp_path, tmp_path, compile=True)
