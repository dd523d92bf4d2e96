"""A model's shape from its config.json and its weights: sizes are the published, parts are those
that torch cuts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import transformers

from rollcast.memory.architecture import FAMILIES, UncountedModelError, model_shape
from rollcast.memory.shards import count_rank_numbers
from testkit.model_shapes import make_shape
from testkit.published_models import BILLIONS, QWEN3_8B
from tests.memory.architectures import SETTINGS, make_config

RANKS = (1, 3, 4, 64)


def test_every_family_is_compared_with_transformers() -> None:
    assert {settings["model_type"] for settings in SETTINGS.values()} == set(FAMILIES)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_rank_holds_what_torch_cuts_for_it(name: str) -> None:
    config = make_config(name)
    with torch.device("meta"):
        weights = list(transformers.AutoModelForCausalLM.from_config(config).parameters())
    shape = make_shape(json.loads(config.to_json_string()))
    for ranks in RANKS:
        parts = [weight.chunk(ranks) for weight in weights]
        for rank in range(ranks):
            expected = sum(chunks[rank].numel() for chunks in parts if rank < len(chunks))
            assert count_rank_numbers(shape.weights(), rank, ranks) == expected, (rank, ranks)


@pytest.mark.parametrize(("config", "billions"), BILLIONS.values(), ids=BILLIONS)
def test_published_models_have_as_many_parameters_as_they_say(
    config: dict[str, Any], billions: float
) -> None:
    digits = len(str(billions).partition(".")[2])
    assert round(make_shape(config).num_parameters / 1e9, digits) == billions


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not one whose memory is counted"),
        ({"model_type": None}, "model_type None is not one"),
        ({"hidden_size": None}, "hidden_size = None is not a size"),
    ],
)
def test_a_model_that_is_not_known_is_not_guessed_at(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UncountedModelError, match=said):
        model_shape(QWEN3_8B | change, {})


def test_weights_of_another_model_are_refused_in_one_sentence() -> None:
    weights = dict(make_shape(QWEN3_8B).weights())
    del weights["model.layers.35.self_attn.q_proj.weight"]
    with pytest.raises(
        UncountedModelError,
        match=r"are not of one model \('self_attn.q_proj.weight'\); give the files",
    ):
        model_shape(QWEN3_8B, weights)
