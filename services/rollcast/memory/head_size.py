"""Which sizes of attention heads the generator's engine has kernels for.

Checked before a run starts.
"""

from collections.abc import Mapping
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.text_model import read_model_config

CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Numbers of a head that vLLM's attention on CPUs is compiled for. On GPUs it has kernels for
any."""


def check_head_size(model: Model, *, on_gpus: bool) -> None:
    """Raises UserError if vLLM has no kernel for the model's heads on this machine; a model that is
    not here passes.
    """
    size = None if on_gpus else head_size(read_model_config(model))
    if size is not None and size not in CPU_HEAD_SIZES:
        sizes = f"{', '.join(map(str, CPU_HEAD_SIZES[:-1]))} or {CPU_HEAD_SIZES[-1]}"
        raise UserError(
            f"model.path = {model.path}: its attention heads have {size} numbers, and on a CPU "
            f"vLLM serves heads of {sizes}; choose another model, or a machine with a GPU"
        )


def head_size(model_config: Mapping[str, Any]) -> int | None:
    """Numbers of one attention head by a config.json, as vLLM reads it; None if that does not say,
    or for latent attention, which has a kernel of its own."""
    inner = model_config.get("text_config")
    settings = inner if isinstance(inner, Mapping) else model_config
    if "kv_lora_rank" in settings:
        return None
    size = settings.get("head_dim")
    if isinstance(size, int) and size > 0:
        return size
    hidden = settings.get("hidden_size")
    heads = settings.get("num_attention_heads")
    return (
        hidden // heads
        if isinstance(hidden, int) and isinstance(heads, int) and heads > 0
        else None
    )
