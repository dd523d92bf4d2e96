"""The experts of a layer are copied into the model as the stacks that travel, two for each layer.

vLLM's own loader takes a stack apart and copies gate, up and down projection of each expert: 18,432
calls for the 48 layers of 128 experts of Qwen3-30B-A3B, all of them in the engine's pause. Its
weights in memory are the same stacks.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

PARTS = {
    "gate_up_proj": ("w13_weight", ("w1", "w3")),
    "w13": ("w13_weight", ("w1", "w3")),
    "down_proj": ("w2_weight", ("w2",)),
    "w2": ("w2_weight", ("w2",)),
}
"""vLLM's parameter for each name of a stack in its layer, and its names of the projections in it,
in order."""
KNOW_NO_STACKS = ("DeepseekV2Model",)
"""Classes whose loader looks for the experts one by one under the names of the files."""


def load_stacks_whole(model: torch.nn.Module) -> None:
    """Replace vLLM's loader of experts by one that copies whole stacks, and leaves everything else
    to it.
    """
    _copy_stacks()
    for module in model.modules():
        if type(module).__name__ in KNOW_NO_STACKS:
            owner: Any = module
            owner.load_weights = functools.partial(_load_stacks_first, owner, owner.load_weights)


def _load_stacks_first(
    model: torch.nn.Module,
    load_others: Callable[[Iterable[tuple[str, torch.Tensor]]], set[str]],
    weights: Iterable[tuple[str, torch.Tensor]],
) -> set[str]:
    """Give each stack to the layer of its name, and the rest to the model's own loader."""
    loaded: set[str] = set()

    def other_weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in weights:
            layer, _, stack_name = name.rpartition(".")
            if stack_name in PARTS:
                experts: Any = model.get_submodule(layer)
                loaded.update(
                    f"{layer}.{parameter}"
                    for parameter in experts.load_weights([(stack_name, weight)])
                )
            else:
                yield name, weight

    return load_others(other_weights()) | loaded


@functools.cache
def _copy_stacks() -> None:
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    load_one_by_one = RoutedExperts.load_weights

    def load_weights(layer: Any, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[str]:
        single_weights: list[tuple[str, torch.Tensor]] = []
        for name, weight in weights:
            if _is_whole_stack(layer, name, weight):
                yield _load_stack(layer, name, weight)
            else:
                single_weights.append((name, weight))
        if single_weights:
            yield from load_one_by_one(layer, single_weights)

    RoutedExperts.load_weights = load_weights


def _is_whole_stack(layer: Any, name: str, weight: torch.Tensor) -> bool:
    """Whether the layer's memory has the form of this stack: all experts, not quantised, not
    transposed.
    """
    return (
        name in PARTS
        and layer.quant_config is None
        and weight.dim() == 3
        and weight.shape[0] == getattr(layer, PARTS[name][0]).shape[0]
        and not layer.use_ep
        and not layer.is_fused_checkpoint_transposed
        and layer.moe_config.is_act_and_mul
    )


def _load_stack(layer: Any, name: str, stack: torch.Tensor) -> str:
    """Returns the name of the loaded parameter."""
    parameter_name, projections = PARTS[name]
    parameter = getattr(layer, parameter_name)
    if stack.shape == parameter.shape:
        parameter.data.copy_(stack)
        return parameter_name
    # vLLM finds this worker's slice, or the unpadded part of the memory; it takes whole stacks
    # there too.
    for projection, stack_slice in zip(
        projections, stack.chunk(len(projections), dim=1), strict=True
    ):
        parameter.weight_loader(
            param=parameter,
            loaded_weight=stack_slice,
            weight_name=parameter_name,
            shard_id=projection,
            expert_id=0,
        )
    return parameter_name
