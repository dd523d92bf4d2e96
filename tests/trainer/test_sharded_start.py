"""Slices that each rank reads for itself, against the whole model as Transformers reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.forked_programs import ForkedPrograms
from testkit.quantised_model import write_fp8, write_mxfp4
from testkit.tiny_model import ARCHITECTURES, make_architecture, make_whole_llama4
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.sharded_start import held
from tests.trainer.stored_models import change_config, store
from tests.trainer.tiny_models import make_config, write_model

WHOLE = "llama4 with vision"
DEQUANTISED = {
    "fp8": "fp8 as float32",
    "fp8 in stacks": "fp8 in stacks as float32",
    "mxfp4": "mxfp4 as float32",
}
"""Models stored in 8 or 4 bits, and the same numbers in float32."""
KINDS = [
    *ARCHITECTURES,
    WHOLE,
    "untied",
    "tied",
    "bfloat16",
    "several files",
    "stacked",
    *DEQUANTISED,
]
ONE_EXPERT = "one expert"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Of every architecture one, and a Qwen3 of odd sizes stored in several ways."""
    folder = tmp_path_factory.mktemp("models")
    for architecture in ARCHITECTURES:
        make_architecture(folder / architecture, architecture)
    make_whole_llama4(folder / WHOLE)
    write_model(folder / "untied")
    write_model(folder / "tied", tied=True)
    store(folder / "untied", folder / "bfloat16", dtype=torch.bfloat16)
    store(folder / "untied", folder / "several files", max_shard_size="20KB")
    assert len(list((folder / "several files").glob("*.safetensors"))) > 2
    store(folder / "qwen3_moe", folder / "stacked", save_original_format=False)
    shutil.copytree(folder / "mixtral", folder / ONE_EXPERT)
    change_config(folder / ONE_EXPERT, num_local_experts=1, num_experts_per_tok=1)
    write_fp8(folder / "qwen3_moe", folder / "fp8", folder / DEQUANTISED["fp8"])
    write_fp8(folder / "stacked", folder / "fp8 in stacks", folder / DEQUANTISED["fp8 in stacks"])
    write_mxfp4(folder / "mxfp4", folder / DEQUANTISED["mxfp4"])
    return {kind: folder / kind for kind in [*KINDS, ONE_EXPERT]}


@pytest.fixture(scope="module")
def of_ranks(
    trainers: ForkedPrograms, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """What each of two ranks holds of every model."""
    results = tmp_path_factory.mktemp("results") / "held"
    run_ranks(trainers, results.parent, "tests.trainer.sharded_start", results, *models.values())
    return [torch.load(f"{results}.{rank}") for rank in (0, 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_ranks_read_is_the_model_bit_for_bit(
    ranks: Ranks, models: dict[str, Path], of_ranks: list[dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    reference = models[kind].with_name(DEQUANTISED.get(kind, kind))
    whole = transformers.AutoModelForCausalLM.from_pretrained(reference, dtype=torch.float32)
    alone = held(LearnerGroup.build(make_config(models[kind], tmp_path), ranks))
    for found in (alone, *(rank[str(models[kind])] for rank in of_ranks)):
        for part, expected in (
            ("weights", whole.named_parameters()),
            ("buffers", whole.named_buffers()),
        ):
            wanted = dict(expected)
            assert found[part].keys() == wanted.keys()
            for name, value in wanted.items():
                assert found[part][name].dtype == value.dtype, name
                assert torch.equal(found[part][name], value), name
    assert kind == "nemotron_h" or any("inv_freq" in name for name in alone["buffers"])


@pytest.mark.parametrize("kind", ["glm4_moe", "minimax_m2"])
def test_each_rank_publishes_its_rows_of_a_routers_bias(
    models: dict[str, Path], of_ranks: list[dict[str, Any]], kind: str
) -> None:
    stored = load_file(models[kind] / "model.safetensors")
    published = [rank[str(models[kind])]["published"] for rank in of_ranks]
    names = [name for name in stored if name.endswith("e_score_correction_bias")]
    assert names
    for name in names:
        assert [len(rows[name]) for rows in published] == [4, 4]
        assert torch.equal(torch.cat([rows[name] for rows in published]), stored[name])


def test_fewer_experts_than_ranks_are_one_sentence(
    models: dict[str, Path], of_ranks: list[dict[str, Any]]
) -> None:
    for rank in of_ranks:
        said = rank[str(models[ONE_EXPERT])]
        assert said.startswith("2 trainer ranks are more than the 1 experts of a layer"), said


def test_the_export_of_a_quantised_model_is_not_quantised(
    ranks: Ranks, models: dict[str, Path], tmp_path: Path
) -> None:
    LearnerGroup.build(make_config(models["fp8"], tmp_path), ranks).export(tmp_path / "export")
    exported = load_file(tmp_path / "export" / "model.safetensors")
    plain = load_file(models["fp8"].with_name(DEQUANTISED["fp8"]) / "model.safetensors")
    assert exported.keys() == plain.keys()
    assert all(torch.equal(exported[name], plain[name]) for name in plain)
    assert "quantization_config" not in json.loads(
        (tmp_path / "export" / "config.json").read_text()
    )


def test_an_export_of_a_quantised_model_has_its_layers_for_further_tokens_in_the_models_type(
    ranks: Ranks, tmp_path: Path
) -> None:
    make_architecture(tmp_path / "source", "deepseek_v3")
    stored = load_file(tmp_path / "source" / "model.safetensors")
    further = {
        name.replace("layers.1.", "layers.61."): weight.clone()
        for name, weight in stored.items()
        if ".layers.1." in name and "experts" not in name
    }
    save_file(stored | further, tmp_path / "source" / "model.safetensors", {"format": "pt"})
    write_fp8(tmp_path / "source", tmp_path / "fp8", tmp_path / "plain")
    LearnerGroup.build(make_config(tmp_path / "fp8", tmp_path), ranks).export(tmp_path / "export")
    exported = load_file(tmp_path / "export" / "model.safetensors")
    plain = load_file(tmp_path / "plain" / "model.safetensors")
    assert exported.keys() == plain.keys()
    for name in further:
        assert exported[name].dtype == torch.float32
        assert torch.equal(exported[name], plain[name])
