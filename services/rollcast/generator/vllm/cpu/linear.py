"""Linear layers on CPU, whose weights vLLM packs and empties, so that a new version could not be
loaded in place.
"""

import torch


def keep_linear_plain() -> None:
    """Let linear layers compute with their own weights."""
    from vllm.model_executor.layers import utils

    # vLLM packs the weight of every linear layer into a oneDNN handle on CPU and empties the
    # parameter. Plain `F.linear` is as fast for small models.
    utils.dispatch_cpu_unquantized_gemm = _keep_plain_linear


def _keep_plain_linear(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]
