"""vLLM plug-in: keeps layers loadable in place on CPU.

vLLM packs the weight of every linear layer into a oneDNN handle on CPU and empties the parameter, so that a new version
could not be loaded without rebuilding the layers. Plain `F.linear` costs small models nothing and loads as on CUDA. For
experts see `expert_packing`.
"""

from __future__ import annotations

import torch

from rollcast.generator.expert_packing import keep_experts_plain


def register() -> None:
    """Entry point `vllm.general_plugins`; runs in every process of the engine, any number of times."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.model_executor.layers import utils

        utils.dispatch_cpu_unquantized_gemm = _keep_plain_linear
        keep_experts_plain()


def _keep_plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]
