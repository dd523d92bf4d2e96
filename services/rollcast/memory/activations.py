"""What a forward pass keeps for its backward pass, in bytes, from the modules as Transformers writes them.

    T tokens of a micro-batch, S tokens of its longest sequence, d bytes of a number in the forward pass (4 or 2)

Every line below is a tensor that autograd holds because a gradient needs it. A norm computes in float32, so that in
bfloat16 it keeps a float32 copy of its input.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.memory.architecture import AttentionShape, FeedForwardShape, LayerShape, ModelShape, Norm

WIDE = 4
"""Bytes of a float32."""


@dataclass(frozen=True, slots=True)
class Load:
    """One micro-batch on one rank."""

    tokens: int
    """T, padding included."""
    longest: int
    """S."""
    item: int
    """d."""


def kept_by_layer(model: ModelShape, layer: LayerShape, load: Load) -> int:
    """Bytes that one decoder layer holds between its forward and its backward pass."""
    family, d = model.family, load.item
    norms = len(family.norms) * _kept_by_norm(family.norm, d) + family.kept_norms * d
    per_token = model.hidden * norms + _kept_by_experts_or_mlp(layer.feed_forward, model.hidden, d)
    return load.tokens * per_token + _kept_by_attention(family.norm, layer.attention, load)


def passing_through_layer(model: ModelShape, layer: LayerShape, load: Load) -> int:
    """Bytes of gradients under way inside one layer's backward pass, beyond what it kept, at their most.

    The product of gate and up projection asks for most: its own gradient and those of its two factors, while of what
    was kept one is gone. Scores held at once ask for their gradients, after the feed-forward's part is free.
    """
    d, feed_forward, attention = load.item, layer.feed_forward, layer.attention
    routed = max(1, feed_forward.chosen)
    products = load.tokens * d * (model.hidden + routed * 2 * feed_forward.width + 2 * feed_forward.shared)
    if not attention.eager:
        return products
    freed = load.tokens * _kept_by_experts_or_mlp(feed_forward, model.hidden, d)
    scores = load.tokens * attention.heads * load.longest * (WIDE + d)
    return max(products, scores - freed)


def kept_by_input(model: ModelShape, load: Load) -> int:
    """Bytes of one layer's input: all that is kept of a layer that will be computed again."""
    return load.tokens * model.hidden * load.item


def kept_around_layers(model: ModelShape, load: Load) -> int:
    """Of the last norm, of what the head reads, and of the rotary tables that all layers share."""
    tables = 2 * load.longest * model.layers[0].attention.head_size
    return load.tokens * model.hidden * (_kept_by_norm(model.family.norm, load.item) + load.item) + tables * load.item


def _kept_by_norm(norm: Norm, d: int) -> int:
    """Per number, without its output: input and normalised input; Cohere's takes the mean off twice."""
    return {"llama": WIDE + d, "gemma": WIDE + WIDE, "layer": 3 * WIDE}[norm]


def _kept_by_attention(norm: Norm, shape: AttentionShape, load: Load) -> int:
    d, query, key = load.item, shape.query_width, shape.key_width
    per_token = 2 * query * d  # rotated queries, and what goes into the output projection
    masked = shape.window is not None and load.longest > shape.window
    if shape.eager or masked:
        per_token += 2 * query * d  # keys and values, repeated for every query head
    else:
        per_token += 2 * key * d
    if shape.eager:  # tanh of the capped scores; softmax in float32, and in the forward pass's dtype
        per_token += shape.heads * load.longest * (d + WIDE + (d if d != WIDE else 0))
    else:
        per_token += shape.heads * WIDE  # log of the softmax's denominator
        per_token += load.longest * d if masked else 0  # the mask as numbers
    if shape.head_norm == "weights":
        per_token += (query + key) * _kept_by_norm(norm, d)
    elif shape.head_norm == "plain":
        per_token += (query + key) * WIDE
    return load.tokens * per_token


def _kept_by_experts_or_mlp(shape: FeedForwardShape, hidden: int, d: int) -> int:
    """Per token: gate and up projection, the activated gate, their product; of experts also input and output."""
    if not shape.experts:
        return 4 * shape.width * d
    routed = shape.chosen * (2 * hidden + 4 * shape.width) * d
    return routed + 4 * shape.shared * d + shape.experts * WIDE
