"""Layers that are compiled, against the same layers as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from rollcast.trainer.learner import reading
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.layer_passes import passes, policy_of
from tests.trainer.tiny_models import make_config, make_sequences

pytestmark = [
    pytest.mark.timeout(600),  # the compiler takes minutes on a busy machine
    pytest.mark.filterwarnings(
        "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]
"""Warnings of torch's own code while it compiles."""
ROUNDING = 3e-6
"""Relative; float32 sums in another order."""
VECTOR_ROUNDING = 1e-5
"""The compiler's code also has exponentials and roots of its own: 4e-6 was seen."""


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compiles as in a run, except that the graphs are executed by torch's own kernels: no C++
    compiler is needed.
    """
    monkeypatch.setattr(reading, "COMPILER", "aot_eager_decomp_partition")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("traced")
def test_compiled_layers_compute_the_same_and_are_compiled_once(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Takes some seconds: forward and backward are traced, and tracing is what is tested."""
    seeds = (2, 5)
    expected = passes(policy_of(ranks, untied_model, tmp_path), ranks, seeds)
    policy = policy_of(
        ranks, untied_model, tmp_path, compile=True, activation_checkpointing="selective"
    )
    found = passes(policy, ranks, seeds)
    assert (found - expected).norm() / expected.norm() < ROUNDING
    compilations = counters["stats"]["unique_graphs"]
    assert compilations == 3, "one for all layers, two for the head"
    assert not counters["graph_break"]
    passes(policy, ranks, (8, 10))
    assert counters["stats"]["unique_graphs"] == compilations, "another length was compiled again"


def test_code_of_the_real_compiler_computes_the_same(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    expected = passes(policy_of(ranks, untied_model, tmp_path), ranks, (2,))
    found = passes(policy_of(ranks, untied_model, tmp_path, compile=True), ranks, (2,))
    torch._dynamo.reset()
    assert (found - expected).norm() / expected.norm() < VECTOR_ROUNDING


def test_compiled_layers_turn_their_adapters_off_for_the_reference(
    ranks: Ranks, untied_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def updates(compiled: bool) -> list[tuple[float, float | None]]:
        lora = {"lora": {"rank": 4, "alpha": 12}, "dtype": "float32"}
        recipe = {
            "kl": {"coefficient": 0.3},
            "optimizer": {"learning_rate": 1e-2, "warmup_steps": 0},
        }
        config = make_config(
            untied_model, tmp_path, model=lora, recipe=recipe, trainer={"compile": compiled}
        )
        group = LearnerGroup.build(config, ranks)
        stats = [group.update(make_sequences(5)) for _ in range(3)]
        return [(one.loss, one.kl) for one in stats]

    monkeypatch.setattr(reading, "COMPILER", "eager")  # needs no C++ compiler
    torch._dynamo.reset()
    for (loss, kl), (plain_loss, plain_kl) in zip(updates(True), updates(False), strict=True):
        assert loss == pytest.approx(plain_loss, rel=1e-5)
        assert kl == pytest.approx(plain_kl, rel=1e-5, abs=1e-9)
