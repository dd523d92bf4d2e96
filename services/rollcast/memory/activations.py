"""Bytes that a forward pass keeps for its backward pass, from the modules as Transformers writes
them.

    T tokens of a micro-batch, S tokens of its longest sequence,
    d bytes of a number in the forward pass (4 or 2)

Every line below is a tensor that autograd holds because a gradient needs it. A norm computes in
float32, so that in bfloat16 it keeps a float32 copy of its input.
"""

from dataclasses import dataclass

from rollcast.memory.architecture import (
    AttentionShape,
    FeedForwardShape,
    LayerShape,
    ModelShape,
    Norm,
)
from rollcast.memory.recurrence import FLOAT32_BYTES


@dataclass(frozen=True, slots=True)
class Load:
    """One micro-batch on one rank."""

    tokens: int
    """T, padding included."""
    longest: int
    """S."""
    item: int
    """d."""
    frozen: bool = False
    """The model's own weights get no gradient (model.lora), so that a norm does not keep its
    normalised input."""


def kept_by_layer(model: ModelShape, layer: LayerShape, load: Load) -> int:
    """Bytes that one decoder layer holds between its forward and its backward pass."""
    family = model.family
    d = load.item
    # Norms of a layer whose output goes into a projection, which keeps it: the ones before
    # attention and before the feed-forward. The output of Gemma 2's other two is added to the
    # residual stream.
    inputs = min(layer.num_norms, 2)
    norms = layer.num_norms * _kept_by_norm(family.norm, load) + inputs * d
    per_token = model.hidden * norms + _kept_by_experts_or_mlp(layer.feed_forward, model.hidden, d)
    if layer.recurrent is not None:
        return load.tokens * per_token + layer.recurrent.kept_bytes(load.tokens, load.longest, d)
    return load.tokens * per_token + _kept_by_attention(family.norm, layer.attention, load)


def passing_through_layer(model: ModelShape, layer: LayerShape, load: Load) -> int:
    """Most bytes of gradients inside one layer's backward pass, in addition to its kept
    activations.

    The product of gate and up projection needs most: its own gradient and those of its two factors,
    while one kept tensor is already free. An eager layer's scores need their gradients after the
    feed-forward's part is free.
    """
    d = load.item
    feed_forward = layer.feed_forward
    attention = layer.attention
    routed = max(1, feed_forward.chosen)
    products = (
        load.tokens * d * (model.hidden + routed * 2 * feed_forward.width + 2 * feed_forward.shared)
    )
    if layer.recurrent is not None:
        return max(products, layer.recurrent.passing_bytes(load.tokens))
    if not attention.eager:
        return products
    freed = load.tokens * _kept_by_experts_or_mlp(feed_forward, model.hidden, d)
    scores = load.tokens * attention.heads * load.longest * (FLOAT32_BYTES + d)
    return max(products, scores - freed)


def kept_by_input(model: ModelShape, load: Load) -> int:
    """Bytes of one layer's input: all that a recomputed layer keeps."""
    return load.tokens * model.hidden * load.item


def kept_by_selection(model: ModelShape, layer: LayerShape, load: Load) -> int:
    """Bytes that a layer keeps with selective recomputation: its input, and results of products and
    of attention.
    """
    attention = layer.attention
    feed_forward = layer.feed_forward
    results = attention.query_width + 2 * attention.key_width + model.hidden
    if layer.recurrent is not None:
        results += layer.recurrent.selected_numbers()
    results += attention.query_width if attention.gated else 0
    if not attention.eager:
        results += attention.query_width
    if feed_forward.experts:
        results += (
            feed_forward.chosen * (2 * feed_forward.width + model.hidden) + feed_forward.experts
        )
        results += (2 * feed_forward.shared + model.hidden) if feed_forward.shared else 0
    else:
        results += 2 * feed_forward.width + model.hidden
    denominators = 0 if attention.eager else attention.heads * FLOAT32_BYTES
    return kept_by_input(model, load) + load.tokens * (results * load.item + denominators)


def kept_around_layers(model: ModelShape, load: Load) -> int:
    """Bytes of the last norm, of the head's input, and of the rotary tables
    that all layers share.
    """
    tables = 2 * load.longest * model.layers[0].attention.head_size
    return (
        load.tokens * model.hidden * (_kept_by_norm(model.family.norm, load) + load.item)
        + tables * load.item
    )


def _kept_by_norm(norm: Norm, load: Load) -> int:
    """Bytes per number, without the output: input and normalised input.

    Cohere's norm subtracts the mean twice.
    """
    normalised = (
        0
        if load.frozen
        else {"llama": load.item, "gemma": FLOAT32_BYTES, "layer": FLOAT32_BYTES}[norm]
    )
    return (2 if norm == "layer" else 1) * FLOAT32_BYTES + normalised


def _kept_by_attention(norm: Norm, shape: AttentionShape, load: Load) -> int:
    d = load.item
    query = shape.query_width
    key = shape.key_width
    per_token = 2 * query * d  # rotated queries, and the input of the output projection
    masked = shape.window is not None and load.longest > shape.window
    if shape.eager or masked:
        per_token += 2 * query * d  # keys and values, repeated for every query head
    else:
        per_token += 2 * key * d
    if (
        shape.eager
    ):  # tanh of the capped scores; softmax in float32, and in the forward pass's dtype
        per_token += (
            shape.heads * load.longest * (d + FLOAT32_BYTES + (d if d != FLOAT32_BYTES else 0))
        )
    else:
        per_token += shape.heads * FLOAT32_BYTES  # log of the softmax's denominator
        per_token += load.longest * d if masked else 0  # the mask as numbers
    if shape.gated:
        per_token += 2 * query * d  # the attention's result before the gate, and the gate
    if shape.head_norm == "weights":
        per_token += (query + key) * _kept_by_norm(norm, load)
    elif shape.head_norm == "plain":
        per_token += (query + key) * FLOAT32_BYTES
    return load.tokens * per_token


def _kept_by_experts_or_mlp(shape: FeedForwardShape, hidden: int, d: int) -> int:
    """Bytes per token: gate and up projection, activated gate, their product; for experts also
    input and output.
    """
    if not shape.experts:
        return 4 * shape.width * d
    routed = shape.chosen * (2 * hidden + 4 * shape.width) * d
    return routed + 4 * shape.shared * d + shape.experts * FLOAT32_BYTES
