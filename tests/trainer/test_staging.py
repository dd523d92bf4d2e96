"""A version is staged through one small piece of a device's memory, whatever the size
of a weight.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import rollcast.memory.trainer as planner
from rollcast.memory.model_file import read_here
from rollcast.memory.trainer import RankMemory
from rollcast.trainer.learner import model as policy_model
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.live_bytes import LiveBytes
from testkit.model_shapes import make_shape
from tests.trainer.tiny_models import make_config

PIECE = 500
"""Bytes: no multiple of a row."""


def test_weights_are_converted_a_piece_at_a_time(
    ranks: Ranks, untied_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """float32 masters, published in bfloat16; on a CPU as on a GPU, where the slots are not."""
    monkeypatch.setattr(policy_model, "PIECE_BYTES", PIECE)
    monkeypatch.setattr(planner, "PIECE_BYTES", PIECE)
    config = make_config(untied_model, tmp_path, model={"dtype": "bfloat16"})
    group = LearnerGroup.build(config, ranks)
    assert max(spec.num_bytes for spec in group.specs) > 4 * PIECE
    with LiveBytes() as live:
        group.stage(0, PolicyVersion(1, 0))
    written = read_here(str(untied_model))
    assert written is not None
    (planned,) = [
        moment.parts["converted"]
        for moment in RankMemory(make_shape(written), config, "gpu", 0, 1).moments()
        if moment.name == "publish"
    ]
    assert live.peak_bytes == planned == PIECE
    published = dict(group.slots[0].views())
    for name, weight in group.learner.policy.published_weights():
        assert torch.equal(published[name], weight.full_tensor().bfloat16())
