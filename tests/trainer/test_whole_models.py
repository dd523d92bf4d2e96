"""Of a model that takes more than text the text model is trained, and an export has the form of the
source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

from rollcast.trainer.learner.export import Export
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.tiny_model import make_whole_llama4, make_whole_qwen3_5, write_tokenizer
from tests.trainer.slow_model import SMALL
from tests.trainer.tiny_models import make_config, make_sequences

KINDS = ("llama4", "qwen3_5", "qwen3_5_moe", "gemma3", "mistral3")
IMAGES = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.fixture(scope="module", params=KINDS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "llama4":
        make_whole_llama4(folder)
    elif request.param.startswith("qwen3_5"):
        make_whole_qwen3_5(folder, request.param)
    else:
        write_tokenizer(folder)
        torch.manual_seed(0)
        whole = transformers.AutoModelForImageTextToText.from_config(
            small_whole(request.param), dtype=torch.float32
        )
        whole.save_pretrained(folder)
    return folder


def small_whole(kind: str) -> Any:
    text = SMALL | {"head_dim": 8, "sliding_window": 32}
    vision: dict[str, Any] = IMAGES | {"image_size": 28, "patch_size": 14}
    if kind == "gemma3":
        return transformers.Gemma3Config(
            text_config=text, vision_config=vision, mm_tokens_per_image=4
        )
    vision |= {"model_type": "pixtral", "head_dim": 8}
    return transformers.Mistral3Config(
        text_config=text | {"model_type": "mistral"}, vision_config=vision
    )


def test_an_export_has_every_tensor_of_the_source_and_only_the_text_models_are_trained(
    ranks: Ranks, source: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(source, tmp_path), ranks)
    assert group.update(make_sequences(0)).applied
    group.export(tmp_path / "export")
    before = load_file(source / "model.safetensors")
    after = load_file(tmp_path / "export" / "model.safetensors")
    assert {name: (tensor.shape, tensor.dtype) for name, tensor in after.items()} == {
        name: (tensor.shape, tensor.dtype) for name, tensor in before.items()
    }
    trained = {name for name in before if not torch.equal(before[name], after[name])}
    rest = {
        name
        for name in before
        if any(part in name for part in ("vision", "visual", "multi_modal", "mtp."))
    }
    assert rest
    assert not trained & rest
    assert len(trained) > len(before.keys() - rest) / 2


def test_an_export_loads_as_the_whole_model_with_the_learners_logits(
    ranks: Ranks, source: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(source, tmp_path), ranks)
    group.update(make_sequences(0))
    group.export(tmp_path / "export")
    whole, report = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "export", dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"]
    text = transformers.AutoModelForCausalLM.from_config(
        group.learner.policy.causal_lm.config, dtype=torch.float32
    )
    weights = {name: weight.full_tensor() for name, weight in group.learner.policy.named_weights()}
    assert not text.load_state_dict(weights, strict=False).unexpected_keys
    ids = torch.arange(3, 43)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            whole.eval()(input_ids=ids).logits, text.eval()(input_ids=ids).logits
        )
    said, was = (
        json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "export", source)
    )
    assert without_dtypes(said) == without_dtypes(was)


def without_dtypes(config: dict[str, Any]) -> dict[str, Any]:
    return {
        name: without_dtypes(value) if isinstance(value, dict) else value
        for name, value in config.items()
        if name != "dtype"
    }


def test_the_rest_goes_into_files_of_a_bounded_size_too(ranks: Ranks, tmp_path: Path) -> None:
    make_whole_qwen3_5(tmp_path / "source", "qwen3_5")
    config = make_config(tmp_path / "source", tmp_path)
    policy = LearnerGroup.build(config, ranks).learner.policy
    Export(policy, config.model, tmp_path / "export", file_bytes=100_000).write()
    files = sorted((tmp_path / "export").glob("*.safetensors"))
    assert len(files) > 2
    before = load_file(tmp_path / "source" / "model.safetensors")
    after = {name: tensor for path in files for name, tensor in load_file(path).items()}
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
