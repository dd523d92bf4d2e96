"""A causal language model as the planner sees it: the shapes of its weights, and what each layer
does with a token.

    V vocabulary, H hidden size, N query heads, K key heads, D head size,
    I width of a feed-forward, E experts

The shapes come from the model's files or from Transformers (`rollcast.memory.weight_shapes`).
Heads, attention windows and the experts of a token come from config.json. What no file states about
a family is in FAMILIES.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rollcast.config.errors import UserError
from rollcast.memory.recurrence import RecurrentShape, recurrent_shape
from rollcast.weights.plan.manifest import DTYPE_BYTES

Shape = tuple[int, ...]
Norm = Literal["llama", "gemma", "layer"]
"""How a family writes its norm. It decides what a norm keeps for the backward pass."""

EMBEDDINGS = "model.embed_tokens.weight"
LAST_NORM = "model.norm.weight"
HEAD = "lm_head.weight"
RECURRENCE = "linear_attn.conv1d.weight"
"""Weight of a layer that keeps a state, by its name within the layer."""
GATED = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
"""Families whose query projection makes the gate of the attention's output too."""
_OF_LAYER = re.compile(r"model\.layers\.(\d{1,5})\.(.+)")


class UncountedModelError(UserError):
    """The memory of this model cannot be counted: unknown architecture, missing size, or unknown
    weight shapes.
    """


@dataclass(frozen=True, slots=True)
class Family:
    """Facts about one `model_type` that neither config.json nor the weights state."""

    norm: Norm = "llama"
    eager: bool = False
    """Attention keeps the scores of a whole layer in memory."""
    tied: bool = False
    """Default of tie_word_embeddings."""
    stacked: bool = False
    """Experts are stored one by one, and Transformers stacks them when it reads them."""
    experts_per_token: int = 0
    """Default of num_experts_per_tok."""


FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "granite": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "qwen3_moe": Family(stacked=True, experts_per_token=8),
    "mixtral": Family(stacked=True, experts_per_token=2),
    "gemma2": Family(norm="gemma", eager=True, tied=True),
    "cohere": Family(norm="layer", tied=True),
    "llama4_text": Family(),
    "qwen3_next": Family(norm="gemma", stacked=True, experts_per_token=10),
    "qwen3_5_text": Family(norm="gemma"),
    "qwen3_5_moe_text": Family(norm="gemma", experts_per_token=8),
}


NEEDED = ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads")
"""Sizes that config.json must give. Every other size has a default."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    heads: int
    key_heads: int
    head_size: int
    head_norm: Literal["none", "weights", "plain"]
    """Norm of queries and keys. `plain`: without weights."""
    eager: bool
    window: int | None
    """Tokens that a layer looks back at. None = all."""
    chunked: bool = False
    """The window is a chunk of the sequence, and does not slide."""
    gated: bool = False
    """A gate, computed next to the queries, multiplies what attention returns."""

    @property
    def query_width(self) -> int:
        return self.heads * self.head_size

    @property
    def key_width(self) -> int:
        return self.key_heads * self.head_size


@dataclass(frozen=True, slots=True)
class FeedForwardShape:
    width: int
    """I, of each expert if there are any."""
    experts: int = 0
    chosen: int = 0
    """Experts that compute each token: all of them in Llama 4."""
    shared: int = 0
    """Width of an additional expert that computes every token."""
    scaled_input: bool = False
    """Router scores multiply the input of an expert, not its output."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    weights: Mapping[str, Shape]
    """Names within the layer."""
    attention: AttentionShape
    """Without heads if the layer keeps a state instead."""
    feed_forward: FeedForwardShape
    recurrent: RecurrentShape | None = None
    """None = the layer has attention."""

    @property
    def num_norms(self) -> int:
        """Norms over the hidden size."""
        return sum("layernorm" in name for name in self.weights)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A causal LM. FSDP shards its weights in three kinds of unit: root, layers, untied head."""

    family: Family
    hidden: int
    vocabulary: int
    tied: bool
    layers: tuple[LayerShape, ...]
    stored_item: int
    """Bytes of a number in the model's files."""

    @property
    def root(self) -> dict[str, Shape]:
        """Weights of no layer: the embeddings, which are also the head if it is tied, and the last
        norm.
        """
        return {EMBEDDINGS: (self.vocabulary, self.hidden), LAST_NORM: (self.hidden,)}

    @property
    def head(self) -> dict[str, Shape]:
        """Empty if it is tied to the embeddings."""
        return {} if self.tied else {HEAD: (self.vocabulary, self.hidden)}

    def weights(self) -> Iterator[tuple[str, Shape]]:
        """Every weight under its Hugging Face name, tied ones once."""
        yield from self.root.items()
        for index, layer in enumerate(self.layers):
            yield from (
                (f"model.layers.{index}.{name}", shape) for name, shape in layer.weights.items()
            )
        yield from self.head.items()

    @property
    def num_parameters(self) -> int:
        return sum(math.prod(shape) for _, shape in self.weights())


def text_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config.json of the text model, which one with several parts holds as `text_config`.

    Raises UncountedModelError if the architecture is not in FAMILIES or a size is missing.
    """
    kind = config.get("model_type")
    text = config.get("text_config")
    is_known = isinstance(kind, str) and kind in FAMILIES
    if not is_known and isinstance(text, Mapping):
        config = {**text, "model_type": text.get("model_type", f"{kind}_text")}
        kind = config["model_type"]
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UncountedModelError(
            f"config.json: model_type {kind!r} is not one whose memory is counted; those are "
            f"{', '.join(FAMILIES)}"
        )
    for name in NEEDED:
        if not isinstance(value := config.get(name), int) or value < 1:
            raise UncountedModelError(
                f"config.json: {name} = {value!r} is not a size; give the config.json of a whole "
                "model"
            )
    return config


def model_shape(config: Mapping[str, Any], weights: Mapping[str, Shape]) -> ModelShape:
    """The text model of a config.json whose weights have these shapes, by their names in
    Transformers.

    Raises UncountedModelError.
    """
    settings = text_settings(config)
    try:
        return _model_shape(
            settings, weights, stored=str(config.get("dtype") or config.get("torch_dtype"))
        )
    except (LookupError, ValueError, ZeroDivisionError) as error:
        raise UncountedModelError(
            f"config.json: its layers and the weights are not of one model ({error}); give the "
            "files of one model"
        ) from error


def _model_shape(
    settings: Mapping[str, Any], weights: Mapping[str, Shape], stored: str
) -> ModelShape:
    family = FAMILIES[settings["model_type"]]
    if settings["num_hidden_layers"] > len(weights):
        raise ValueError("more layers than weights")
    layers: list[dict[str, Shape]] = [{} for _ in range(settings["num_hidden_layers"])]
    for name, shape in weights.items():
        if layer_match := _OF_LAYER.fullmatch(name):
            layers[int(layer_match[1])][layer_match[2]] = shape
    vocabulary, hidden = weights[EMBEDDINGS]
    tied = bool(settings.get("tie_word_embeddings", family.tied))
    if not tied and weights[HEAD] != (vocabulary, hidden):
        raise ValueError(f"{HEAD} has the shape {weights[HEAD]}")
    return ModelShape(
        family=family,
        hidden=hidden,
        vocabulary=vocabulary,
        tied=tied,
        layers=tuple(_layer(settings, layer, index, hidden) for index, layer in enumerate(layers)),
        stored_item=DTYPE_BYTES.get(stored.removeprefix("torch."), DTYPE_BYTES["bfloat16"]),
    )


def _layer(
    settings: Mapping[str, Any], layer: Mapping[str, Shape], index: int, hidden: int
) -> LayerShape:
    feed_forward = _feed_forward(settings, layer, hidden)
    if RECURRENCE not in layer:
        return LayerShape(layer, _attention(settings, layer, index), feed_forward)
    nothing = AttentionShape(
        0, 0, settings.get("head_dim", 256), head_norm="none", eager=False, window=None
    )
    return LayerShape(layer, nothing, feed_forward, recurrent_shape(settings))


def _attention(
    settings: Mapping[str, Any], layer: Mapping[str, Shape], index: int
) -> AttentionShape:
    kind = settings["model_type"]
    heads = settings["num_attention_heads"]
    is_gated = kind in GATED
    head_size = layer["self_attn.q_proj.weight"][0] // heads // (2 if is_gated else 1)
    is_rotary = kind != "llama4_text" or _has_rotary_positions(settings, index)
    head_norm: Literal["none", "weights", "plain"] = "none"
    if "self_attn.q_norm.weight" in layer:
        head_norm = "weights"
    elif kind == "llama4_text" and is_rotary and settings.get("use_qk_norm", True):
        head_norm = "plain"
    window = _window(settings, index) if is_rotary else None
    length = settings.get("max_position_embeddings", 0)
    return AttentionShape(
        heads=heads,
        key_heads=layer["self_attn.k_proj.weight"][0] // head_size,
        head_size=head_size,
        head_norm=head_norm,
        eager=FAMILIES[kind].eager,
        window=None if window is None or 0 < length <= window else window,
        chunked=kind == "llama4_text",
        gated=is_gated,
    )


def _has_rotary_positions(settings: Mapping[str, Any], index: int) -> bool:
    """Every fourth layer of Llama 4 has no rotary positions and looks at the whole sequence."""
    listed = settings.get("no_rope_layers") or []
    if index < len(listed):
        return bool(listed[index])
    interval: int = settings.get("no_rope_layer_interval", 4)
    return (index + 1) % interval != 0


def _window(settings: Mapping[str, Any], index: int) -> int | None:
    """Tokens that a layer looks back at, by the rules of Transformers' configs for each family."""
    kind = settings["model_type"]
    sliding: int | None = settings.get("sliding_window", None if kind == "mistral" else 4096)
    if kind == "llama4_text":
        return int(settings.get("attention_chunk_size", 8192))
    if kind == "gemma2":
        return sliding if index % 2 == 0 else None
    if kind == "mistral":
        return sliding
    if settings.get("use_sliding_window") and index >= settings.get("max_window_layers", 28):
        return sliding
    return None


def _feed_forward(
    settings: Mapping[str, Any], layer: Mapping[str, Shape], hidden: int
) -> FeedForwardShape:
    """Llama 4 calls it `feed_forward`, the others `mlp`."""
    named = {
        name.partition(".")[2]: shape
        for name, shape in layer.items()
        if name.startswith(("mlp.", "feed_forward."))
    }
    products = named.get("experts.down_proj")
    if products is None:
        return FeedForwardShape(named["gate_proj.weight"][0])
    experts = products[0]
    width = math.prod(products[1:]) // hidden
    kind = settings["model_type"]
    shared = named.get("shared_expert.gate_proj.weight", (0,))[0]
    if kind == "llama4_text":
        return FeedForwardShape(width, experts, chosen=experts, shared=shared, scaled_input=True)
    chosen = settings.get("num_experts_per_tok", FAMILIES[kind].experts_per_token)
    return FeedForwardShape(width, experts, chosen, shared)
