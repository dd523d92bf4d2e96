"""The weights of a model, by name and shape, from its config.json: what Transformers would make, without making it.

    V vocabulary, H hidden size, N query heads, K key heads, D head size, I width of a feed-forward, E experts

A test holds names and shapes against the meta device, for every family below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rollcast.config.errors import UserError
from rollcast.weights.plan.manifest import DTYPE_BYTES

Shape = tuple[int, ...]
Norm = Literal["llama", "gemma", "layer"]
"""How a family writes its norm, by which follows what a backward pass keeps of it."""


class UncountedModelError(UserError):
    """The architecture is none whose weights are known here, or its config.json lacks a number."""


@dataclass(frozen=True, slots=True)
class Family:
    """What tells one `model_type` from the others."""

    norm: Norm = "llama"
    head_norm: Literal["none", "weights", "plain"] = "none"
    """On queries and keys. `plain`: without weights."""
    query_bias: bool = False
    """Of the projections to queries, keys and values, where config.json does not say."""
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    kept_norms: int = 2
    """Norms of a layer whose output goes into a projection, and is kept for its gradient."""
    eager: bool = False
    """Attention holds the scores of a whole layer at once."""
    tied: bool = False
    head_size: int | None = None
    """Where config.json does not say. None = H / N."""
    stacked: bool = False
    """Experts are stored one by one; Transformers stacks them when it reads them."""


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "granite": Family(),
    "qwen2": Family(query_bias=True),
    "qwen3": Family(head_norm="weights", head_size=128),
    "qwen3_moe": Family(head_norm="weights", head_size=128, stacked=True),
    "mixtral": Family(stacked=True),
    "gemma2": Family(
        norm="gemma",
        norms=(
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm",
        ),
        eager=True,
        tied=True,
        head_size=256,
    ),
    "cohere": Family(norm="layer", norms=("input_layernorm",), kept_norms=1, tied=True),
    "llama4_text": Family(head_size=128),
}


NEEDED = ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
"""Sizes without which nothing is counted; the others have defaults."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    heads: int
    key_heads: int
    head_size: int
    head_norm: Literal["none", "weights", "plain"]
    eager: bool
    window: int | None
    """Tokens that a layer looks back at. None = all."""
    chunked: bool = False
    """The window is a chunk of the sequence, and does not slide."""

    @property
    def query_width(self) -> int:
        return self.heads * self.head_size

    @property
    def key_width(self) -> int:
        return self.key_heads * self.head_size


@dataclass(frozen=True, slots=True)
class FeedForwardShape:
    width: int
    """I, of each expert where there are any."""
    experts: int = 0
    chosen: int = 0
    """Experts whose product each token is a part of: all of them in Llama 4, which computes every one."""
    shared: int = 0
    """Width of an expert that every token goes through besides."""
    scaled_input: bool = False
    """Router scores multiply what goes into an expert, not what comes out."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    weights: Mapping[str, Shape]
    """Names within the layer."""
    attention: AttentionShape
    feed_forward: FeedForwardShape


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A causal LM; weights in three kinds of FSDP unit: root, layers, untied head."""

    family: Family
    hidden: int
    vocabulary: int
    tied: bool
    layers: tuple[LayerShape, ...]
    stored_item: int
    """Bytes of a number in the model's files."""

    @property
    def root(self) -> dict[str, Shape]:
        """What no layer holds: embeddings, which are the head as well where it is tied, and the last norm."""
        return {"model.embed_tokens.weight": (self.vocabulary, self.hidden), "model.norm.weight": (self.hidden,)}

    @property
    def head(self) -> dict[str, Shape]:
        """Empty where it is tied to the embeddings."""
        return {} if self.tied else {"lm_head.weight": (self.vocabulary, self.hidden)}

    def weights(self) -> Iterator[tuple[str, Shape]]:
        """Every weight under its Hugging Face name, tied ones once."""
        yield from self.root.items()
        for index, layer in enumerate(self.layers):
            yield from ((f"model.layers.{index}.{name}", shape) for name, shape in layer.weights.items())
        yield from self.head.items()

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.weights())


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """The model of a config.json; of one with several parts its text model. Raises UncountedModelError."""
    kind = config.get("model_type")
    text = config.get("text_config")
    stored = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
    if kind not in FAMILIES and isinstance(text, Mapping):
        config, kind = text, text.get("model_type", f"{kind}_text")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UncountedModelError(
            f"config.json: model_type {kind!r} is not one whose memory is counted; those are {', '.join(FAMILIES)}"
        )
    for name in NEEDED:
        if not isinstance(value := config.get(name), int) or value < 1:
            raise UncountedModelError(
                f"config.json: {name} = {value!r} is no size; give the config.json of a whole model"
            )
    family = FAMILIES[kind]
    return ModelShape(
        family=family,
        hidden=config["hidden_size"],
        vocabulary=config["vocab_size"],
        tied=config.get("tie_word_embeddings", family.tied),
        layers=tuple(_layer(kind, family, config, index) for index in range(config["num_hidden_layers"])),
        stored_item=DTYPE_BYTES.get(stored, DTYPE_BYTES["bfloat16"]),
    )


def _layer(kind: str, family: Family, config: Mapping[str, Any], index: int) -> LayerShape:
    hidden = config["hidden_size"]
    attention = _attention(kind, family, config, index)
    feed_forward = _feed_forward(kind, config, index)
    return LayerShape(
        {
            **_attention_weights(attention, family, config),
            **_feed_forward_weights(kind, feed_forward, config),
            **{f"{name}.weight": (hidden,) for name in family.norms},
        },
        attention,
        feed_forward,
    )


def _attention(kind: str, family: Family, config: Mapping[str, Any], index: int) -> AttentionShape:
    heads, length = config["num_attention_heads"], config.get("max_position_embeddings", 0)
    rope = _entry(config.get("no_rope_layers") or [], index, (index + 1) % config.get("no_rope_layer_interval", 4) != 0)
    window: int | None = None
    if kind == "llama4_text":
        window = config.get("attention_chunk_size", 8192) if rope else None
    elif kind == "gemma2":
        window = config.get("sliding_window", 4096) if index % 2 == 0 else None
    elif kind == "mistral":
        window = config.get("sliding_window")
    elif config.get("use_sliding_window") and index >= config.get("max_window_layers", 28):
        window = config.get("sliding_window", 4096)
    head_norm = family.head_norm
    if kind == "llama4_text" and rope and config.get("use_qk_norm", True):
        head_norm = "plain"
    if kind == "cohere" and config.get("use_qk_norm"):
        head_norm = "weights"
    return AttentionShape(
        heads=heads,
        key_heads=config.get("num_key_value_heads") or heads,
        head_size=config.get("head_dim") or family.head_size or config["hidden_size"] // heads,
        head_norm=head_norm,
        eager=family.eager,
        window=None if window is None or 0 < length <= window else window,
        chunked=kind == "llama4_text",
    )


def _entry(values: list[Any], index: int, default: bool) -> bool:
    return bool(values[index]) if index < len(values) else default


def _attention_weights(shape: AttentionShape, family: Family, config: Mapping[str, Any]) -> dict[str, Shape]:
    hidden, query, key = config["hidden_size"], shape.query_width, shape.key_width
    projections = dict.fromkeys(("k_proj", "v_proj"), (key, hidden))
    projections |= {"q_proj": (query, hidden), "o_proj": (hidden, query)}
    weights: dict[str, Shape] = {f"self_attn.{name}.weight": size for name, size in projections.items()}
    if config.get("attention_bias", False):
        weights |= {f"self_attn.{name}.bias": size[:1] for name, size in projections.items()}
    elif family.query_bias:
        weights |= {f"self_attn.{name}.bias": size[:1] for name, size in projections.items() if name != "o_proj"}
    if shape.head_norm == "weights":
        whole = family.norm == "layer"  # Cohere's has weights for each head
        weights["self_attn.q_norm.weight"] = (shape.heads, shape.head_size) if whole else (shape.head_size,)
        weights["self_attn.k_norm.weight"] = (shape.key_heads, shape.head_size) if whole else (shape.head_size,)
    return weights


def _feed_forward(kind: str, config: Mapping[str, Any], index: int) -> FeedForwardShape:
    width = config["intermediate_size"]
    experts = config.get("num_experts") or config.get("num_local_experts") or 0
    if kind == "mixtral":
        return FeedForwardShape(width, experts or 8, config.get("num_experts_per_tok", 2))
    if kind == "qwen3_moe":
        every, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or []
        if index in dense or (index + 1) % every:
            return FeedForwardShape(width)
        return FeedForwardShape(config["moe_intermediate_size"], experts or 128, config.get("num_experts_per_tok", 8))
    if kind == "llama4_text":
        step = config.get("interleave_moe_layer_step", 1)
        mixed = config.get("moe_layers") or range(step - 1, config["num_hidden_layers"], step)
        if index not in mixed:
            return FeedForwardShape(config.get("intermediate_size_mlp", 16384))
        return FeedForwardShape(width, experts or 16, experts or 16, shared=width, scaled_input=True)
    return FeedForwardShape(width)


def _feed_forward_weights(kind: str, shape: FeedForwardShape, config: Mapping[str, Any]) -> dict[str, Shape]:
    hidden = config["hidden_size"]
    place = "feed_forward" if kind == "llama4_text" else "mlp"
    if not shape.experts:
        return _gated(place, shape.width, hidden, biased=bool(config.get("mlp_bias", False)))
    experts, width = shape.experts, shape.width
    if kind == "llama4_text":
        return {
            "feed_forward.experts.gate_up_proj": (experts, hidden, 2 * width),
            "feed_forward.experts.down_proj": (experts, width, hidden),
            "feed_forward.router.weight": (experts, hidden),
            **_gated("feed_forward.shared_expert", shape.shared, hidden, biased=False),
        }
    return {
        "mlp.experts.gate_up_proj": (experts, 2 * width, hidden),
        "mlp.experts.down_proj": (experts, hidden, width),
        "mlp.gate.weight": (experts, hidden),
    }


def _gated(place: str, width: int, hidden: int, *, biased: bool) -> dict[str, Shape]:
    shapes = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
    weights: dict[str, Shape] = {f"{place}.{name}.weight": shape for name, shape in shapes.items()}
    if biased:
        weights |= {f"{place}.{name}.bias": shape[:1] for name, shape in shapes.items()}
    return weights
