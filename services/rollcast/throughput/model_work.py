"""Operations and bytes that one token costs, from the shape of the model."""

import math

from rollcast.memory.architecture import LayerShape, ModelShape

EXPERT_WEIGHTS = ".experts."


def active_weights(model: ModelShape) -> int:
    """Entries of the matrices that one token is multiplied with: of the chosen experts only, and of
    the head.
    """
    layers = sum(_active_in_layer(layer) for layer in model.layers)
    return layers + model.vocabulary * model.hidden


def _active_in_layer(layer: LayerShape) -> int:
    total = 0
    for name, shape in layer.weights.items():
        if len(shape) < 2:
            continue
        size = math.prod(shape)
        if EXPERT_WEIGHTS in name:
            size = size * layer.feed_forward.chosen // layer.feed_forward.experts
        total += size
    return total


def attention_flops(model: ModelShape, position: float) -> float:
    """Operations of one token's scores and weighted sum in a forward pass, at a mean position in
    its sequence.

    A layer with a recurrent state has as many at every position.
    """
    total = 0.0
    for layer in model.layers:
        if layer.recurrent is not None:
            total += layer.recurrent.operations
        window = layer.attention.window
        attended_tokens = position if window is None else min(position, window)
        total += 4 * layer.attention.query_width * attended_tokens
    return total


def training_flops(model: ModelShape, position: float, *, has_adapters: bool = False) -> float:
    """Operations of one token, forward and backward, without recomputation.

    A backward pass takes twice the operations of a forward pass, but frozen weights get no
    gradients. The operations of adapters, some hundredths, are not counted.
    """
    passes_of_weights = 2 if has_adapters else 3
    return passes_of_weights * 2 * active_weights(model) + 3 * attention_flops(model, position)


def forward_flops(model: ModelShape, position: float) -> float:
    """Operations of one token in a forward pass."""
    return 2 * active_weights(model) + attention_flops(model, position)


def has_experts(model: ModelShape) -> bool:
    return any(layer.feed_forward.experts for layer in model.layers)
