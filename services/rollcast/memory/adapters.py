"""The adapters of model.lora as the planner sees them: the shapes of A and B next to each adapted
weight.
"""

from collections.abc import Iterator, Mapping

from rollcast.config.lora import Lora
from rollcast.memory.architecture import ModelShape, Shape


def adapter_shapes(weights: Mapping[str, Shape], lora: Lora) -> dict[str, Shape]:
    """The adapter weights of a unit with these weights: A [rank, inputs], B [outputs, rank]."""
    shapes: dict[str, Shape] = {}
    for name, shape in weights.items():
        layer = name.removesuffix(".weight")
        if len(shape) == 2 and layer != name and layer.rpartition(".")[2] in lora.layers:
            outputs, inputs = shape
            shapes[f"{layer}.lora_A.weight"] = (lora.rank, inputs)
            shapes[f"{layer}.lora_B.weight"] = (outputs, lora.rank)
    return shapes


def all_adapters(model: ModelShape, lora: Lora) -> Iterator[tuple[str, Shape]]:
    """Every adapter weight of the model."""
    for index, layer in enumerate(model.layers):
        for name, shape in adapter_shapes(layer.weights, lora).items():
            yield f"model.layers.{index}.{name}", shape


def kept_for_adapters(weights: Mapping[str, Shape], lora: Lora, tokens: int, item: int) -> int:
    """Bytes of the results of A in a layer, which B's gradient needs.

    The inputs of A are kept as without adapters.
    """
    return len(adapter_shapes(weights, lora)) // 2 * lora.rank * tokens * item


def passing_for_adapters(weights: Mapping[str, Shape], lora: Lora, tokens: int, item: int) -> int:
    """Most bytes of an adapter's result before and after it is scaled, which are added to the
    layer's own.
    """
    outputs = [
        shape[0] for name, shape in adapter_shapes(weights, lora).items() if ".lora_B." in name
    ]
    return 2 * max(outputs, default=0) * tokens * item
