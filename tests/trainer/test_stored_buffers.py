"""Buffers that belong to a model's files, as the bias of a router's choice: published, exported,
checkpointed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from rollcast.trainer.learner.checkpoint import load_weights
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.tiny_model import VOCABULARY, make_architecture
from tests.trainer.tiny_models import make_config

BIAS = "e_score_correction_bias"
PUBLISHED = {
    "glm4_moe": "model.layers.1.mlp.gate.e_score_correction_bias",
    "deepseek_v3": "model.layers.1.mlp.gate.e_score_correction_bias",
    "minimax_m2": "model.layers.1.block_sparse_moe.e_score_correction_bias",
}
"""One of an architecture, under the name that the generators know."""


def biases(group: LearnerGroup) -> list[Tensor]:
    return [
        buffer
        for name, buffer in group.learner.policy.causal_lm.named_buffers()
        if name.endswith(BIAS)
    ]


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_an_untrained_export_has_the_logits_of_its_source(
    ranks: Ranks, tmp_path: Path, architecture: str
) -> None:
    make_architecture(tmp_path / "source", architecture)
    LearnerGroup.build(make_config(tmp_path / "source", tmp_path), ranks).export(
        tmp_path / "export"
    )
    source, exported = (
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path / name, dtype=torch.float32)
        for name in ("source", "export")
    )
    ids = torch.arange(VOCABULARY)[None]
    with torch.no_grad():
        expected = source(input_ids=ids).logits
        torch.testing.assert_close(exported(input_ids=ids).logits, expected, rtol=0, atol=1e-6)
        for name, buffer in source.named_buffers():
            if name.endswith(BIAS):
                buffer.zero_()
        assert (source(input_ids=ids).logits - expected).abs().max() > 0.01, (
            "the bias makes no difference"
        )


@pytest.mark.parametrize("architecture", PUBLISHED)
def test_a_bias_keeps_its_precision_to_the_generators_and_into_the_export(
    ranks: Ranks, tmp_path: Path, architecture: str
) -> None:
    make_architecture(tmp_path / "source", architecture)
    stored = load_file(tmp_path / "source" / "model.safetensors")[PUBLISHED[architecture]]
    group = LearnerGroup.build(
        make_config(tmp_path / "source", tmp_path, model={"dtype": "bfloat16"}), ranks
    )
    group.stage(0, PolicyVersion(1, 0))
    staged = dict(group.slots[0].views())
    group.export(tmp_path / "export")
    exported = load_file(tmp_path / "export" / "model.safetensors")
    assert staged["lm_head.weight"].dtype == exported["lm_head.weight"].dtype == torch.bfloat16
    for found in (staged, exported):
        assert found[PUBLISHED[architecture]].dtype == torch.float32
        assert torch.equal(found[PUBLISHED[architecture]], stored)


def test_a_checkpoint_holds_the_biases(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path / "source", "glm4_moe")
    config = make_config(tmp_path / "source", tmp_path)
    earlier = LearnerGroup.build(config, ranks)
    for bias in biases(earlier):
        bias.mul_(-2.0)
    path = earlier.save(PolicyVersion(1, 0), {}).result()

    resumed = LearnerGroup.build(config, ranks)
    resumed.restore(path)
    begun = LearnerGroup.build(config, ranks)
    load_weights(path, begun.learner)
    for later in (resumed, begun):
        assert len(biases(later)) == 2
        assert all(
            torch.equal(one, other)
            for one, other in zip(biases(later), biases(earlier), strict=True)
        )
