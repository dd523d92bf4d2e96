"""Whether a model generates text, and how long a text it knows, by its config.json.

Checked before a run starts.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.model_file import read_here

LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "max_seq_len",
    "seq_length",
    "n_ctx",
)
"""Names under which a model's config.json gives the positions that it knows."""
_ROPE = ("rope_parameters", "rope_scaling")
_CAUSAL = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""Endings of the names of Transformers' classes that generate text. The last kind may also take
images."""
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim",
    "vocab_size", "moe_intermediate_size", "num_experts", "num_local_experts", "n_routed_experts",
    "n_embd", "n_layer", "n_head",
)  # fmt: skip
"""Settings of a config.json that decide the shapes of the weights."""
_LONGER_ALLOWED = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def known_length(model_config: Mapping[str, Any]) -> int | None:
    """Tokens of the longest text that a model knows, by its config.json; None if
    that does not say.
    """
    for settings in _groups(model_config):
        for name in LENGTHS:
            # A smaller number is not the length of a language model
            if isinstance(length := settings.get(name), int) and length >= 8:
                return length
    return None


def weight_sizes(model_config: Mapping[str, Any]) -> dict[str, int]:
    """The SIZES that a config.json has, of the text model if it takes more than text."""
    return {
        name: size
        for settings in _groups(model_config)
        for name in SIZES
        if type(size := settings.get(name)) is int
    }


def read_model_config(model: Model) -> Mapping[str, Any]:
    """The config.json that this machine has of the model; empty if there is no readable one."""
    try:
        return read_here(model.path) or {}
    except (OSError, UserError):
        return {}


def check_causal(model: Model) -> None:
    """Raises UserError for a model that this machine has and that samples no text.

    A model that is not here yet, cannot be read or names no class in its config.json is left to the
    trainer.
    """
    model_config = read_model_config(model)
    kind = model_config.get("model_type")
    classes = model_config.get("architectures")
    name = (
        classes[0] if isinstance(classes, list) and classes and isinstance(classes[0], str) else ""
    )
    remedy = "give a model that continues a text, such as Qwen/Qwen3-0.6B"
    if model_config.get("is_encoder_decoder") is True:
        model_kind = f"an encoder and a decoder, not a causal language model ({name or kind})"
        raise UserError(f"model.path = {model.path}: is {model_kind}; {remedy}")
    if name and not name.endswith(_CAUSAL) and model_config.get("is_decoder") is not True:
        raise UserError(
            f"model.path = {model.path}: is {name}, not a causal language model; {remedy}"
        )


def check_max_length(model: Model) -> None:
    """Raises UserError if model.max_length is above what the model knows: vLLM refuses to serve it.

    A length that config.json stretches (rope_scaling) counts as stretched.
    """
    model_config = read_model_config(model)
    length = known_length(model_config)
    if length is None or os.environ.get(_LONGER_ALLOWED, "0") not in ("", "0"):
        return
    longest = int(
        max([length, *_other_lengths(model_config)]) * max([1.0, *_factors(model_config)])
    )
    if model.max_length > longest:
        raise UserError(
            f"model.max_length = {model.max_length}: the model knows texts of {longest} tokens "
            "(its config.json), and "
            f"vLLM serves no longer ones; set at most {longest}, or leave it out"
        )


def _groups(model_config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The settings themselves, and those of the text model in one that takes more than text."""
    inner = model_config.get("text_config")
    yield model_config
    if isinstance(inner, Mapping):
        yield inner


def _other_lengths(model_config: Mapping[str, Any]) -> Iterator[int]:
    for settings in _groups(model_config):
        for name in (*LENGTHS, "model_max_length"):
            if isinstance(length := settings.get(name), int):
                yield length


def _factors(model_config: Mapping[str, Any]) -> Iterator[float]:
    """By how much positions are stretched: one factor for each kind of layer."""
    for settings in _groups(model_config):
        for name in _ROPE:
            rope = settings.get(name)
            kinds = [rope, *rope.values()] if isinstance(rope, Mapping) else []
            for kind in kinds:
                factor = kind.get("factor") if isinstance(kind, Mapping) else None
                # Files hold any number; no model stretches its positions further
                if isinstance(factor, int | float) and factor < 1e6:
                    yield float(factor)
