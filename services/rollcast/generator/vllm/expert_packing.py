"""Experts on CPU stay loadable in place: vLLM's packed copy stands beside the plain weights, and is made anew.

vLLM replaces the weights of experts by what its CPU kernel reads, which a new version could not be loaded into. The
kernels that it is told to use on GPUs (engine.py) read the weights as they are loaded.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

PACKED = "rollcast_packed"
EXPERTS = "rollcast_experts"


@functools.cache
def keep_experts_plain() -> None:
    """Let vLLM's CPU experts pack a stand-in of their layer, and compute with that."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    pack, apply = CPUUnquantizedExperts.process_weights_after_loading, CPUUnquantizedExperts.apply

    def pack_stand_in(experts: Any, layer: torch.nn.Module) -> None:
        stand_in = torch.nn.Module()
        for name, parameter in layer.named_parameters(recurse=False):
            stand_in.register_parameter(name, parameter)
        pack(experts, stand_in)
        setattr(experts, PACKED, stand_in)
        setattr(layer, EXPERTS, experts)

    def apply_packed(experts: Any, **arguments: Any) -> Any:
        packed = getattr(experts, PACKED)
        return apply(experts, **(arguments | {"w1": packed.w13_weight, "w2": packed.w2_weight}))

    CPUUnquantizedExperts.process_weights_after_loading = pack_stand_in
    CPUUnquantizedExperts.apply = apply_packed


def pack_again(model: torch.nn.Module) -> None:
    """To be called after every load in place; does nothing where no experts were packed."""
    for layer in model.modules():
        experts = getattr(layer, EXPERTS, None)
        if experts is not None:
            experts.process_weights_after_loading(layer)
