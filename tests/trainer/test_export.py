from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.weights.snapshot import Snapshot
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences, write_model

CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


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


def test_an_export_holds_all_that_serving_needs(ranks: Ranks, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source")
    GenerationConfig(
        eos_token_id=[1, 7], pad_token_id=0, do_sample=True, temperature=0.6, top_k=20, top_p=0.95
    ).save_pretrained(source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "tool_use": CHAT_TEMPLATE + "tools"}
    tokenizer.save_pretrained(source)
    LearnerGroup.build(make_config(source, tmp_path), ranks).export(tmp_path / "export")

    generation = GenerationConfig.from_pretrained(tmp_path / "export")
    assert generation.eos_token_id == [1, 7]
    assert (generation.do_sample, generation.temperature, generation.top_k, generation.top_p) == (True, 0.6, 20, 0.95)
    assert AutoTokenizer.from_pretrained(tmp_path / "export").chat_template == tokenizer.chat_template
    assert files(source).keys() <= files(tmp_path / "export").keys()


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077], ids=oct)
def test_an_export_is_readable_as_the_umask_says(ranks: Ranks, tmp_path: Path, umask: int) -> None:
    source = write_model(tmp_path / "source")
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "tool_use": CHAT_TEMPLATE + "tools"}
    tokenizer.save_pretrained(source)
    group = LearnerGroup.build(make_config(source, tmp_path), ranks)
    before = os.umask(umask)
    try:
        group.export(tmp_path / "export")
    finally:
        os.umask(before)
    modes = files(tmp_path / "export")
    assert "additional_chat_templates/tool_use.jinja" in modes
    assert modes == dict.fromkeys(modes, oct(0o666 & ~umask))


def files(folder: Path) -> dict[str, str]:
    """Every file's mode."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): oct(stat.S_IMODE(path.stat().st_mode)) for path in found}


def test_a_source_without_a_generation_config_is_exported_too(ranks: Ranks, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source")
    (source / "generation_config.json").unlink()
    LearnerGroup.build(make_config(source, tmp_path), ranks).export(tmp_path / "export")
    AutoModelForCausalLM.from_pretrained(tmp_path / "export")


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
