"""How long a text a model knows, by config.json files as their models have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.text_model import check_max_length, known_length

QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "max_position_embeddings": 40_960,
    "rope_scaling": None,
}
GPT2: dict[str, Any] = {"model_type": "gpt2", "n_positions": 1_024, "n_ctx": 1_024}
LLAMA2_LINEAR: dict[str, Any] = {
    "max_position_embeddings": 4_096,
    "rope_scaling": {"type": "linear", "factor": 4.0},
}
GEMMA3: dict[str, Any] = {"text_config": {"max_position_embeddings": 32_768}}
LAYER_TYPES: dict[str, Any] = {
    "max_position_embeddings": 1_000,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8},
        "sliding_attention": {"rope_type": "default"},
    },
}


def refusal(folder: Path, found: dict[str, Any], length: int) -> str:
    """Empty: it is allowed."""
    (folder / "config.json").write_text(json.dumps(found))
    try:
        check_max_length(Model(path=str(folder), max_length=length))
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("found", "longest"),
    [
        (QWEN3, 40_960),
        (GPT2, 1_024),
        (LLAMA2_LINEAR, 16_384),
        (GEMMA3, 32_768),
        (LAYER_TYPES, 8_000),
    ],
    ids=["Qwen3", "GPT-2", "stretched", "text model", "by kind of layer"],
)
def test_the_edge_is_the_models(found: dict[str, Any], longest: int, tmp_path: Path) -> None:
    assert refusal(tmp_path, found, longest) == ""
    assert f"= {longest + 1}: the model knows texts of {longest} tokens" in refusal(
        tmp_path, found, longest + 1
    )


@pytest.mark.parametrize(
    "found",
    [{}, {"max_position_embeddings": None}, {"max_position_embeddings": 1}, {"rope_scaling": 3}],
)
def test_a_model_that_says_nothing_is_left_to_the_engine(
    found: dict[str, Any], tmp_path: Path
) -> None:
    assert known_length(found) is None
    assert refusal(tmp_path, found, 1 << 20) == ""


def test_a_model_that_is_not_here_is_left_to_the_engine(tmp_path: Path) -> None:
    check_max_length(Model(path=str(tmp_path / "none"), max_length=1 << 20))


def test_who_allows_the_engine_more_may_have_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    assert refusal(tmp_path, GPT2, 4_096) == ""
