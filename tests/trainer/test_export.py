from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.snapshot import Snapshot
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_export_loads_and_has_the_policys_logits(ranks: Ranks, model: Path, tmp_path: Path, dtype: str) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path, model={"dtype": dtype}), ranks)
    for step in range(2):
        group.update(make_sequences(step))
        group.export(tmp_path / "export")  # the second replaces the first
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    assert exported.dtype == getattr(torch, dtype)
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=exported.dtype).eval()
    trained = {name: weight.full_tensor().to(exported.dtype) for name, weight in group.learner.policy.named_weights()}
    assert not plain.load_state_dict(trained, strict=False).unexpected_keys
    ids = torch.arange(VOCAB)[None]
    with torch.no_grad():
        assert torch.equal(exported(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert AutoTokenizer.from_pretrained(tmp_path / "export")("AB").input_ids
    assert not list(tmp_path.glob(".partial-*"))


def test_gathered_weights_are_the_models(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    config = make_config(model, tmp_path, model={"dtype": "bfloat16"}, weights={"bucket_bytes": 1 << 16})
    group = LearnerGroup.build(config, ranks)
    snapshot = Snapshot(group.buckets, torch.device("cpu"))
    group.gather(snapshot)
    expected = dict(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).named_parameters())
    found = dict(snapshot.views())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name].bfloat16()) for name in found)


def test_a_folder_that_cannot_be_written_is_one_sentence(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"export folder .* cannot be written"):
        group.export(tmp_path / "file" / "export")
