from __future__ import annotations

import hashlib
import json
import os
import resource
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch
import transformers
from safetensors.torch import load_file

from rollcast.config.custom_function import CustomFunction
from rollcast.config.custom_function_digests import with_digests
from rollcast.config.errors import PassingError, UserError
from rollcast.config.model import Model
from rollcast.config.run import RunConfig
from rollcast.trainer.learner.export import CUSTOM_FUNCTIONS, Export
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.service import serve
from rollcast.wire.version import PolicyVersion
from testkit.tiny_model import make_architecture
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences, write_model

FOLDERS = ("export", "source")
CHAT_TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_export_loads_and_has_the_policys_logits(
    ranks: Ranks, model: Path, tmp_path: Path, dtype: str
) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path, model={"dtype": dtype}), ranks)
    for step in range(2):
        group.update(make_sequences(step))
        group.export(tmp_path / "export")  # the second replaces the first
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export").eval()
    assert exported.dtype == getattr(torch, dtype)
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=exported.dtype).eval()
    trained = {
        name: weight.full_tensor().to(exported.dtype)
        for name, weight in group.learner.policy.named_weights()
    }
    assert not plain.load_state_dict(trained, strict=False).unexpected_keys
    ids = torch.arange(VOCAB)[None]
    with torch.no_grad():
        assert torch.equal(exported(input_ids=ids).logits, plain(input_ids=ids).logits)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "export")("AB").input_ids
    assert not list(tmp_path.glob(".partial-*"))


def test_an_export_holds_all_that_serving_needs(ranks: Ranks, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source")
    transformers.GenerationConfig(
        eos_token_id=[1, 7], pad_token_id=0, do_sample=True, temperature=0.6, top_k=20, top_p=0.95
    ).save_pretrained(source)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = {"default": CHAT_TEMPLATE, "tool_use": CHAT_TEMPLATE + "tools"}
    tokenizer.save_pretrained(source)
    LearnerGroup.build(make_config(source, tmp_path), ranks).export(tmp_path / "export")

    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "export")
    assert generation.eos_token_id == [1, 7]
    assert (generation.do_sample, generation.temperature, generation.top_k, generation.top_p) == (
        True,
        0.6,
        20,
        0.95,
    )
    assert (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "export").chat_template
        == tokenizer.chat_template
    )
    assert files(source).keys() <= files(tmp_path / "export").keys()


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077], ids=oct)
def test_an_export_is_readable_as_the_umask_says(ranks: Ranks, tmp_path: Path, umask: int) -> None:
    source = write_model(tmp_path / "source")
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
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
    transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "export")


@pytest.mark.parametrize("kind", ["qwen3", "mixtral"])
def test_a_big_model_is_exported_in_several_files(ranks: Ranks, tmp_path: Path, kind: str) -> None:
    make_architecture(tmp_path / "source", kind)
    policy = LearnerGroup.build(make_config(tmp_path / "source", tmp_path), ranks).learner.policy
    settings = Model(path=str(tmp_path / "source"), dtype="float32")
    Export(policy, settings, tmp_path / "export", file_bytes=100_000).write()
    files = sorted((tmp_path / "export").glob("*.safetensors"))
    assert len(files) > 2
    stored = {name for path in files for name in load_file(path)}
    assert stored == load_file(tmp_path / "source" / "model.safetensors").keys()
    assert all(path.stat().st_size < 110_000 for path in files)
    exported, plain = (
        dict(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / n).named_parameters())
        for n in FOLDERS
    )
    assert exported.keys() == plain.keys()
    assert all(torch.equal(exported[name], plain[name]) for name in plain)


def test_every_file_of_the_source_but_its_weights_is_there(ranks: Ranks, tmp_path: Path) -> None:
    source = write_model(tmp_path / "source")
    (source / "README.md").write_text("of the model")
    (source / "special.py").write_text("# its code")
    (source / "model.safetensors.index.json").write_text("{}")
    for name in ("optimizer.pt", "pytorch_model.bin", "checkpoint-5/optimizer.pt"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"much")
    LearnerGroup.build(make_config(source, tmp_path), ranks).export(tmp_path / "export")
    left_out = {
        "model.safetensors.index.json",
        "optimizer.pt",
        "pytorch_model.bin",
        "checkpoint-5/optimizer.pt",
    }
    assert files(tmp_path / "export").keys() == files(source).keys() - left_out
    unchanged = files(source).keys() - left_out - {"config.json", "model.safetensors"}
    assert all(
        (tmp_path / "export" / name).read_bytes() == (source / name).read_bytes()
        for name in unchanged
    )


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            PassingError, match=r"^export folder .* cannot be written \(.*\); free space"
        ):
            group.export(tmp_path / "export")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_staged_weights_are_the_models(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    config = make_config(
        model, tmp_path, model={"dtype": "bfloat16"}, weights={"bucket_bytes": 1 << 16}
    )
    group = LearnerGroup.build(config, ranks)
    group.stage(0, PolicyVersion(1, 0))
    expected = dict(
        transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32
        ).named_parameters()
    )
    found = dict(group.slots[0].views())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name].bfloat16()) for name in found)


def test_a_folder_that_cannot_be_written_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"export folder .* cannot be written"):
        group.export(tmp_path / "file" / "export")


def test_an_export_names_the_parts_of_the_recipe_that_were_functions(
    ranks: Ranks, tmp_path: Path
) -> None:
    source = write_model(tmp_path / "source")
    (tmp_path / "mine.py").write_text("def keeps(group):\n    return True\n")
    config = make_config(
        source,
        tmp_path,
        recipe={"filter": {"kind": "python", "function": f"{tmp_path}/mine.py:keeps"}},
    )
    config = config.model_copy(update={"recipe": with_digests(config.recipe)})
    LearnerGroup.build(config, ranks).export(tmp_path / "export")
    digest = hashlib.sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    expected = {"kind": "python", "function": f"{tmp_path}/mine.py:keeps", "digest": digest}
    assert json.loads((tmp_path / "export" / CUSTOM_FUNCTIONS).read_text()) == {
        "recipe.filter": expected
    }


def test_a_clusters_trainer_fills_in_the_digest_of_what_is_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def keeps(group):\n    return True\n")
    config = make_config(tmp_path, tmp_path)
    recipe = config.recipe.model_copy(update={"filter": CustomFunction(function=f"{mine}:keeps")})
    seen: list[RunConfig] = []

    def build(config: RunConfig, ranks: object) -> NoReturn:
        seen.append(config)
        raise UserError("built")

    monkeypatch.setattr(
        "rollcast.trainer.service.join_configured_ranks",
        lambda _: SimpleNamespace(leave=lambda: None),
    )
    monkeypatch.setattr(LearnerGroup, "build", build)
    with pytest.raises(UserError, match=r"^built$"):
        serve(config.model_copy(update={"recipe": recipe}), resume=False)
    (part,) = seen[0].recipe.custom_functions.values()
    assert part.digest == hashlib.sha256(mine.read_bytes()).hexdigest()
