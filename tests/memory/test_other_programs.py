"""What Transformers, in a process, and vLLM say of a model is what is counted with."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from rollcast.config.lora import ENGINE_RANKS
from rollcast.memory.architecture import UncountedModelError
from rollcast.memory.safetensors_headers import WHOLE
from rollcast.memory.weight_shapes import find_model_shape
from testkit.model_shapes import make_header, make_shape
from testkit.published_models import QWEN3_8B


def test_a_config_alone_is_made_by_transformers_in_a_process(tmp_path: Path) -> None:
    assert find_model_shape(QWEN3_8B, folder=tmp_path) == make_shape(QWEN3_8B)
    (tmp_path / WHOLE).write_bytes(make_header({"model.layers.0.self_attn.q_proj.qweight": (3,)}))
    quantised = QWEN3_8B | {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert find_model_shape(quantised, folder=tmp_path) == make_shape(QWEN3_8B)


def test_what_transformers_refuses_is_one_sentence() -> None:
    with pytest.raises(UncountedModelError, match="Transformers makes no model of it") as refused:
        find_model_shape(QWEN3_8B | {"hidden_act": "none of these"})
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("default")  # vLLM's
def test_the_generators_make_room_for_vllms_ranks() -> None:
    from vllm.config.lora import MaxLoRARanks

    assert get_args(MaxLoRARanks) == ENGINE_RANKS
