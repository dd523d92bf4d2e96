"""An exported adapter added to its base: `rollcast model merge`, and what cannot be merged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import transformers
from peft import PeftModel
from typer.testing import CliRunner

from rollcast.cli.model import app
from rollcast.config.errors import UserError
from rollcast.local.merged_model import merge_adapter
from rollcast.trainer.learner.ranks import Ranks
from testkit.quantised_model import write_fp8
from testkit.tiny_model import make_architecture
from tests.trainer.lora_groups import build
from tests.trainer.tiny_models import VOCAB, make_sequences, write_model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_merged_model_has_the_adapters_logits(
    ranks: Ranks, model: Path, tmp_path: Path, dtype: str
) -> None:
    group = build(ranks, model, tmp_path, dtype=dtype)
    for step in range(2):
        group.update(make_sequences(step))
    group.export(tmp_path / "export")
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.arange(VOCAB)[None]
    with torch.no_grad():
        before = base(input_ids=ids).logits
        logits = PeftModel.from_pretrained(base, tmp_path / "export").double()(input_ids=ids).logits
        assert merge_adapter(tmp_path / "export", None, tmp_path / "merged").num_weights == 14
        whole = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "merged", dtype=torch.float32
        ).double()
        # Only the merged weights are rounded, once, to float32.
        gap = (whole(input_ids=ids).logits - logits).abs().max() / logits.abs().max()
        assert gap < 1e-5
    assert (logits - before).abs().max() > 0.05
    transformers.AutoTokenizer.from_pretrained(tmp_path / "merged")


def test_the_command_merges_into_a_folder_that_is_not_there_yet(
    ranks: Ranks, model: Path, tmp_path: Path
) -> None:
    build(ranks, model, tmp_path).export(tmp_path / "export")
    arguments = ["merge", str(tmp_path / "export"), "--folder", str(tmp_path / "merged")]
    for expected in ("14 weights of", ""):
        answer = CliRunner().invoke(app, arguments)
        assert answer.exit_code == 0
        assert answer.output.startswith(expected)
    plain, whole = (
        transformers.AutoModelForCausalLM.from_pretrained(path).state_dict()
        for path in (model, tmp_path / "merged")
    )
    assert all(torch.equal(plain[name], value) for name, value in whole.items()), "B is 0"


@pytest.mark.parametrize("named", ["by its config", "by a type alone"])
def test_a_quantised_base_is_not_merged(ranks: Ranks, tmp_path: Path, named: str) -> None:
    make_architecture(tmp_path / "source", "qwen3")
    write_fp8(tmp_path / "source", tmp_path / "quantised", tmp_path / "plain")
    build(ranks, tmp_path / "plain", tmp_path).export(tmp_path / "export")
    sentence = "is quantised, and an adapter is added to a model in 16 or 32 bits"
    if named == "by a type alone":
        shutil.copyfile(tmp_path / "plain" / "config.json", tmp_path / "quantised" / "config.json")
        sentence = "_proj.weight is of type F8_E4M3, "
    with pytest.raises(UserError, match=rf"{sentence}.*; name its base model with --base"):
        merge_adapter(tmp_path / "export", str(tmp_path / "quantised"), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_without_torch_the_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapter_config.json").write_text(f'{{"base_model_name_or_path": "{tmp_path}"}}')
    (tmp_path / "adapter_model.safetensors").touch()
    monkeypatch.setattr("rollcast.local.merged_model.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"torch is not installed; run pip install 'rollcast\[trainer\]'$"
    ):
        merge_adapter(tmp_path, None, tmp_path / "merged")


def test_what_cannot_be_merged_is_one_sentence(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    build(ranks, model, tmp_path).export(tmp_path / "export")
    larger = write_model(tmp_path / "larger", hidden=64)
    shallow = write_model(tmp_path / "shallow", layers=1)
    for base, reason in (
        (larger, "the adapter is of another model"),
        (shallow, "has no weight model.layers.1.mlp"),
    ):
        with pytest.raises(UserError, match=rf"{reason}.*; name its base model with --base"):
            merge_adapter(tmp_path / "export", str(base), tmp_path / "merged")
        assert not (tmp_path / "merged").exists()
    with pytest.raises(
        UserError, match=r"cannot be read as an adapter .*; give the folder that a run with"
    ):
        merge_adapter(model, None, tmp_path / "merged")
