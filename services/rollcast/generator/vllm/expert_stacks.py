"""The experts of a layer are copied into the model as the stacks that travel, two for each layer.

vLLM's own loader takes a stack apart and copies gate, up and down projection of each expert: 18,432 calls for the 48
layers of 128 experts of Qwen3-30B-A3B, all of them in the engine's pause. Its weights in memory are the same stacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

PARTS = {
    "gate_up_proj": ("w13_weight", ("w1", "w3")),
    "w13": ("w13_weight", ("w1", "w3")),
    "down_proj": ("w2_weight", ("w2",)),
    "w2": ("w2_weight", ("w2",)),
}
"""For each name under which a stack travels: vLLM's parameter, and its names of the projections in it, in order."""


@dataclass(frozen=True)
class _Place:
    """Where one stack goes."""

    parameter_name: str
    """In the model."""
    parameter: Any
    """vLLM's weights of all experts [E, rows, columns], or this worker's slice of each."""
    projections: tuple[str, ...]

    def accepts(self, stack: torch.Tensor) -> bool:
        return stack.dim() == 3 and stack.shape[0] == self.parameter.shape[0]

    def load(self, stack: torch.Tensor) -> None:
        if stack.shape == self.parameter.shape:
            self.parameter.data.copy_(stack)
            return
        # vLLM finds this worker's slice, or the part of padded weights; it takes whole stacks there too.
        for projection, part in zip(self.projections, stack.chunk(len(self.projections), dim=1), strict=True):
            self.parameter.weight_loader(
                param=self.parameter,
                loaded_weight=part,
                weight_name=self.parameter_name,
                shard_id=projection,
                expert_id=0,
            )


class ExpertStacks:
    """The stacks of a model whose form in memory is that in which they travel; empty for a dense model."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._places: dict[str, _Place] = {}
        for name, layer in model.named_modules():
            if _is_plain(layer):
                self._add(name, layer)

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[set[str], list[tuple[str, torch.Tensor]]]:
        """Copy the stacks among `tensors`. Returns the names of the loaded parameters, and the other tensors."""
        loaded: set[str] = set()
        others: list[tuple[str, torch.Tensor]] = []
        for name, tensor in tensors:
            place = self._places.get(name)
            if place is not None and place.accepts(tensor):
                place.load(tensor)
                loaded.add(place.parameter_name)
            else:
                others.append((name, tensor))
        return loaded, others

    def _add(self, layer_name: str, layer: Any) -> None:
        # The stacks travel under the name of the module around the weights.
        prefix = layer_name.rpartition(".")[0]
        for part, (weight, projections) in PARTS.items():
            parameter = getattr(layer, weight)
            self._places[f"{prefix}.{part}"] = _Place(f"{layer_name}.{weight}", parameter, projections)


def _is_plain(module: Any) -> bool:
    """Whether it holds the weights of experts as they travel: not quantised, not transposed, all experts here."""
    from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts

    return (
        isinstance(module, RoutedExperts)
        and module.quant_config is None
        and not module.use_ep
        and not module.is_fused_checkpoint_transposed
        and module.moe_config.is_act_and_mul
    )
