"""Keeps experts on CPU loadable in place: vLLM's packed copy exists next to the plain weights, and is packed again.

vLLM replaces the weights of experts by a packed form for its CPU kernel, into which a new version cannot be loaded. The
kernels chosen for GPUs (`engine_start`) read the weights as they are loaded.
"""

import functools
from typing import Any

import torch

PACKED = "rollcast_packed"
EXPERTS = "rollcast_experts"


@functools.cache
def keep_experts_plain() -> None:
    """Let vLLM's CPU experts pack a stand-in of their layer, and compute with that."""
    from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts

    pack = CPUUnquantizedExperts.process_weights_after_loading
    apply = CPUUnquantizedExperts.apply

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
    """Call it after every load in place. Does nothing if no experts were packed."""
    for layer in model.modules():
        experts = getattr(layer, EXPERTS, None)
        if experts is not None:
            experts.process_weights_after_loading(layer)
