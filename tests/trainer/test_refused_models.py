"""Models that cannot be trained, or not as they are stored: each is one sentence
with the way out.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.quantised_model import write_fp8
from testkit.tiny_model import make_architecture, make_whole_llama4
from tests.trainer.slow_model import SMALL
from tests.trainer.stored_models import change_config, store
from tests.trainer.tiny_models import make_config

TINY = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def refused(ranks: Ranks, folder: Path, run_folder: Path) -> str:
    with pytest.raises(UserError) as error:
        LearnerGroup.build(make_config(folder, run_folder), ranks)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with experts, each stored by itself."""
    folder = tmp_path_factory.mktemp("experts")
    make_architecture(folder, "qwen3_moe")
    return folder


def test_a_folder_that_is_not_there_is_named(ranks: Ranks, tmp_path: Path) -> None:
    """Transformers says "Repo id must be in the form ...", as
    if a name on the hub had been given.
    """
    said = refused(ranks, tmp_path / "typo", tmp_path)
    assert said.startswith(
        f"model.path = '{tmp_path}/typo': there is no such folder on this machine; put or mount"
    )


def test_an_encoder_is_said_to_be_one(ranks: Ranks, tmp_path: Path) -> None:
    transformers.BertLMHeadModel(transformers.BertConfig(**TINY)).save_pretrained(tmp_path)
    sentence = "is not a causal language model: each token of a bert sees those after it"
    assert sentence in refused(ranks, tmp_path, tmp_path)


def test_what_takes_more_than_text_is_refused_with_the_way_out(
    ranks: Ranks, tmp_path: Path
) -> None:
    transformers.MllamaConfig(
        text_config=transformers.models.mllama.configuration_mllama.MllamaTextConfig(
            **TINY
        ).to_dict()
    ).save_pretrained(tmp_path)
    assert "is a mllama that takes more than text" in refused(ranks, tmp_path, tmp_path)


def test_quantised_weights_of_a_text_model_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    make_whole_llama4(folder)
    change_config(folder, quantization_config={"quant_method": "awq"})
    assert "is quantised by 'awq'" in refused(ranks, folder, tmp_path)


def test_routers_that_draw_lots_are_refused(ranks: Ranks, tmp_path: Path) -> None:
    transformers.PhimoeConfig(**TINY).save_pretrained(tmp_path)
    assert "whose routers draw experts at random" in refused(ranks, tmp_path, tmp_path)


def test_quantised_weights_are_refused(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untied_model, tmp_path / "model")
    change_config(folder, quantization_config={"quant_method": "awq"})
    assert "is quantised by 'awq'" in refused(ranks, folder, tmp_path)


def test_pickled_weights_alone_are_refused(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(untied_model, tmp_path / "model")
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder)
    torch.save(whole.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "give a folder with config.json and safetensors" in refused(ranks, folder, tmp_path)


def test_tied_matrices_that_differ_are_refused(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(untied_model, tmp_path / "model")
    change_config(folder, tie_word_embeddings=True)
    assert "two different matrices that its config calls tied" in refused(ranks, folder, tmp_path)


@pytest.mark.parametrize("has_settings", [True, False])
def test_numbers_of_few_bits_without_scales_are_refused(
    ranks: Ranks, experts: Path, tmp_path: Path, has_settings: bool
) -> None:
    folder = tmp_path / "model"
    store(experts, tmp_path / "stacked", save_original_format=False)
    write_fp8(tmp_path / "stacked", folder, tmp_path / "plain")
    stored = load_file(folder / "model.safetensors")
    weight = next(name for name in stored if name.endswith("experts.down_proj"))
    del stored[f"{weight}_scale_inv"]
    if not has_settings:
        stored = {
            name: tensor
            for name, tensor in stored.items()
            if name == weight or tensor.element_size() > 1
        }
        change_config(folder, quantization_config=None)
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    assert f"stores {weight} as F8_E4M3 without the scales" in refused(ranks, folder, tmp_path)


def test_factors_of_other_blocks_are_refused(ranks: Ranks, experts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_fp8(experts, folder, tmp_path / "plain")
    settings = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [16, 24],
    }
    change_config(folder, quantization_config=settings)
    assert "where weight_block_size = [16, 24] asks for" in refused(ranks, folder, tmp_path)


@pytest.mark.parametrize(
    ("model_type", "settings", "reason"),
    [
        ("jamba", {"num_experts": 2}, "weights in a form that the generators do not take"),
        ("llama", {"logits_scaling": 2.0}, "logits in another way"),
    ],
    ids=["experts under names of their own", "a scale that the model leaves out"],
)
def test_what_the_generators_would_not_understand_is_refused(
    ranks: Ranks, tmp_path: Path, model_type: str, settings: dict[str, Any], reason: str
) -> None:
    transformers.AutoConfig.for_model(model_type, **SMALL, **settings).save_pretrained(tmp_path)
    with pytest.raises(UserError, match=rf"^model\.path = .*{reason}.*; choose another model$"):
        LearnerGroup.build(make_config(tmp_path, tmp_path), ranks)
