"""How a decoder layer is computed: which of its results are kept for the backward pass, and whether
it is compiled.

    layer(hidden) -> FSDP gathers the weights -> [compiled] -> [recomputed] -> the layer's own code

A layer is compiled by itself: all layers have the same code, so that one compilation serves them
all. Lengths are dynamic, so that a micro-batch of another length needs no other one. The compiled
code fuses norms, rotary embeddings, activations and residuals, which needs no library of fused
kernels.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from rollcast.config.services import Recomputation

COMPILER = "inductor"
"""torch.compile's backend in a run; tests take one that needs no C++ compiler."""
SAVED_OPERATIONS = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::_grouped_mm",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "torch_attn::_varlen_attn",
    }
)
"""Operations whose results selective recomputation keeps: they take nearly all of a layer's
time."""


def decoder_layers(causal_lm: Any) -> list[nn.Module]:
    """The modules that are computed, recomputed, compiled and sharded as one."""
    classes = set(causal_lm._no_split_modules or ())
    return [module for module in causal_lm.modules() if type(module).__name__ in classes]


def recompute(layer: nn.Module, mode: Recomputation) -> None:
    """Let the layer keep its input alone, with `mode` "selective" also the results
    of SAVED_OPERATIONS.
    """
    if mode is False:
        return
    settings: dict[str, Any] = {"use_reentrant": False}
    if mode == "selective":
        settings["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    layer.forward = partial(checkpoint, layer.forward, **settings)


def why_not_compiled(causal_lm: Any) -> str | None:
    """Why the layers of this model cannot be compiled; None = they can."""
    if not decoder_layers(causal_lm):
        return "this model names no decoder layers"
    if any(parameter.dim() == 3 for parameter in causal_lm.parameters()):
        return (
            "this model has weights of three dimensions, such as stacked experts, whose code is "
            "not compiled"
        )
    return None


def compile_layer(layer: nn.Module, compiler: str) -> None:
    """Compile the layer's own code, recomputation included; FSDP's hooks stay outside."""
    # Variants of a layer's code: its kinds, with and without gradient, and one row or one token,
    # which torch treats apart. Beyond torch's own limit of 8 it would compute the others
    # uncompiled.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    layer.forward = torch.compile(layer.forward, backend=compiler, dynamic=True)


def _policy(context: Any, operation: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
    return (
        CheckpointPolicy.MUST_SAVE
        if operation.name() in SAVED_OPERATIONS
        else CheckpointPolicy.PREFER_RECOMPUTE
    )
