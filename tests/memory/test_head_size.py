"""The sizes of heads that a model may have, against the list of the installed vLLM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.head_size import CPU_HEAD_SIZES, check_head_size, head_size


@pytest.mark.engine
def test_the_sizes_are_those_of_the_installed_engine() -> None:
    attention = pytest.importorskip("vllm.v1.attention.backends.cpu_attn")
    assert tuple(attention.CPUAttentionBackend.get_supported_head_sizes()) == CPU_HEAD_SIZES


@pytest.mark.parametrize(
    ("found", "size"),
    [
        ({"head_dim": 16, "hidden_size": 64, "num_attention_heads": 4}, 16),
        ({"hidden_size": 576, "num_attention_heads": 9}, 64),
        ({"head_dim": None, "hidden_size": 48, "num_attention_heads": 2}, 24),
        ({"text_config": {"head_dim": 256}, "hidden_size": 8}, 256),
        ({"kv_lora_rank": 512, "head_dim": 8}, None),
        ({"num_attention_heads": [2, 4], "hidden_size": 64}, None),
        ({}, None),
    ],
)
def test_it_is_read_as_the_engine_reads_it(
    found: dict[str, Any], size: int | None, tmp_path: Path
) -> None:
    assert head_size(found) == size
    (tmp_path / "config.json").write_text(json.dumps(found))
    model = Model(path=str(tmp_path))
    check_head_size(model, on_gpus=True)
    if size in (16, 24):
        with pytest.raises(UserError, match=f"heads have {size} numbers, and on a CPU"):
            check_head_size(model, on_gpus=False)
    else:
        check_head_size(model, on_gpus=False)
