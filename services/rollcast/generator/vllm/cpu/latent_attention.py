"""Latent attention (DeepSeek) on CPU, where vLLM's kernel for AMX packs the weight, and its rotary
kernel gives wrong numbers.
"""

import functools
from typing import Any

import torch


@functools.cache
def use_plain_kernels_on_cpu() -> None:
    """Let vLLM take the CPU kernels that compute latent attention in float32 and leave its weights
    in place.
    """
    from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    # That for AMX packs the weight, removes it and knows no float32.
    check = CpuPlatform.check_and_update_config

    def check_and_update_config(platform: Any, config: Any) -> None:
        if config.model_config is not None and config.model_config.use_mla:
            config.attention_config.backend = AttentionBackendEnum.CPU_MLA
        check(config)

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)

    # vLLM's rotary kernel for CPUs takes the heads for tokens if they have a dimension of their
    # own.
    rotate = RotaryEmbedding.forward_cpu

    def forward_cpu(
        layer: Any, positions: torch.Tensor, query: torch.Tensor, key: torch.Tensor | None = None
    ) -> Any:
        if query.dim() == 3:
            return layer.forward_native(positions, query, key)
        return rotate(layer, positions, query, key)

    RotaryEmbedding.forward_cpu = forward_cpu
