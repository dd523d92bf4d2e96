"""Weights counted from config.json are those that Transformers makes on the meta device; sizes are the published."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from rollcast.memory.architecture import FAMILIES, UncountedModelError, model_shape
from rollcast.memory.trainer import sharded
from testkit.published_models import BILLIONS, QWEN3_8B
from tests.memory.architectures import CONFIGS

RANKS = (1, 3, 4, 64)


def made(config: Any) -> dict[str, torch.Tensor]:
    """Every weight of the model, none of it in memory."""
    with torch.device("meta"):
        return dict(AutoModelForCausalLM.from_config(config).named_parameters())


def test_every_family_is_held_against_transformers() -> None:
    assert {config.model_type for config in CONFIGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_names_and_shapes_are_those_that_transformers_makes(config: Any) -> None:
    written = json.loads(config.to_json_string())
    expected = {name: tuple(weight.shape) for name, weight in made(config).items()}
    assert dict(model_shape(written).weights()) == expected


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_rank_holds_what_torch_cuts_for_it(config: Any) -> None:
    weights = made(config).values()
    shape = model_shape(json.loads(config.to_json_string()))
    for ranks in RANKS:
        parts = [weight.chunk(ranks) for weight in weights]
        for rank in range(ranks):
            expected = sum(chunks[rank].numel() for chunks in parts if rank < len(chunks))
            assert sharded(shape.weights(), rank, ranks) == expected, (rank, ranks)


@pytest.mark.parametrize(("config", "billions"), BILLIONS.values(), ids=BILLIONS)
def test_published_models_have_as_many_parameters_as_they_say(config: dict[str, Any], billions: float) -> None:
    digits = len(str(billions).partition(".")[2])
    assert round(model_shape(config).num_parameters / 1e9, digits) == billions


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not one whose memory is counted"),
        ({"model_type": None}, "model_type None is not one"),
        ({"hidden_size": None}, "hidden_size = None is no size"),
    ],
)
def test_a_model_that_is_not_known_is_not_guessed_at(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UncountedModelError, match=said):
        model_shape(QWEN3_8B | change)
