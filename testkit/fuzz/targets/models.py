"""Files of models and checkpoints: config.json, headers of weights, tokenizers, state."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.memory.architecture import model_shape, text_settings
from rollcast.memory.model_file import read_here
from rollcast.memory.safetensors_headers import WHOLE, stored_here
from rollcast.memory.text_model import check_causal, check_max_length, weight_sizes
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.trainer.control.progress import MalformedProgress, Progress
from testkit.chat_tokenizers import make_chat_tokenizer
from testkit.fuzz.mutation import change_bytes, change_json
from testkit.fuzz.target import Target, is_json, scratch_folder

CONFIG = {
    "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 8,
    "vocab_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 4, "intermediate_size": 16, "moe_intermediate_size": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "tie_word_embeddings": False, "max_position_embeddings": 512,
    "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 16,
    "use_sliding_window": True, "torch_dtype": "bfloat16", "rope_scaling": {"factor": 2.0},
}  # fmt: skip


def _shapes() -> dict[str, list[int]]:
    layer = {
        "input_layernorm.weight": [8], "post_attention_layernorm.weight": [8],
        "self_attn.q_proj.weight": [8, 8], "self_attn.k_proj.weight": [4, 8],
        "self_attn.v_proj.weight": [4, 8], "self_attn.o_proj.weight": [8, 8],
        "self_attn.q_norm.weight": [4], "self_attn.k_norm.weight": [4], "mlp.gate.weight": [4, 8],
    }  # fmt: skip
    for expert in range(4):
        layer[f"mlp.experts.{expert}.gate_proj.weight"] = [4, 8]
        layer[f"mlp.experts.{expert}.up_proj.weight"] = [4, 8]
        layer[f"mlp.experts.{expert}.down_proj.weight"] = [8, 4]
    ends = {
        "model.embed_tokens.weight": [32, 8],
        "model.norm.weight": [8],
        "lm_head.weight": [32, 8],
    }
    return ends | {
        f"model.layers.{number}.{name}": shape
        for number in range(2)
        for name, shape in layer.items()
    }


def _folder() -> Path:
    folder = scratch_folder() / "model"
    folder.mkdir(exist_ok=True)
    return folder


def _with_length(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def _headers() -> list[bytes]:
    entries = {
        name: {"dtype": "BF16", "shape": shape, "data_offsets": [0, 0]}
        for name, shape in _shapes().items()
    }
    return [_with_length(json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode())]


def change_header(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    if chance.randrange(10) == 0:
        return change_bytes(content, pool, chance)
    return _with_length(change_json(content[8:], [item[8:] for item in pool], chance))


def _has_length(content: bytes) -> bool:
    return 0 < int.from_bytes(content[:8], "little") <= len(content) - 8


def _read_header(content: bytes) -> object:
    (_folder() / WHOLE).write_bytes(content)
    stored = stored_here(_folder())
    return stored and model_shape(CONFIG, stored)


def _read_config(content: bytes) -> object:
    """Every look at a model's config.json before a start, but for Transformers' own."""
    (_folder() / "config.json").write_bytes(content)
    (_folder() / WHOLE).write_bytes(_headers()[0])
    model = Model(path=str(_folder()), max_length=64)
    check_causal(model)
    check_max_length(model)
    config = read_here(model.path)
    assert config is not None
    weight_sizes(config)
    text_settings(config)
    stored = stored_here(_folder())
    return stored and model_shape(config, stored)


def _tokenizers() -> list[bytes]:
    text = make_chat_tokenizer("chatml").backend_tokenizer.to_str()
    unigram: dict[str, Any] = {
        "version": "1.0", "added_tokens": [], "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        "decoder": None, "post_processor": None, "truncation": None, "padding": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["\u2581a", -1.0]]},
    }  # fmt: skip
    return [text.encode(), json.dumps(unigram).encode()]


def _read_tokenizer(content: bytes) -> object:
    (_folder() / "tokenizer.json").write_bytes(content)
    tokenizer = TokenizerFile.read(_folder(), "model")
    if tokenizer is None:
        return None
    tokenizer.count("What is 1 + 1? \u00e9\U0001f600")
    tokenizer.not_known("a\u00e9")
    tokenizer.special_tokens()
    tokenizer.added_from(0)
    return tokenizer.has("a")


def _read_tokenizer_settings(content: bytes) -> object:
    (_folder() / "tokenizer_config.json").write_bytes(content)
    (_folder() / "tokenizer.json").write_bytes(_tokenizer())
    tokenizer = TokenizerFile.read(_folder(), "model")
    return tokenizer is not None and tokenizer.has_chat_template


@cache
def _tokenizer() -> bytes:
    return _tokenizers()[1]


def _controllers() -> list[bytes]:
    progress = Progress(step=3, incarnation=1, earlier=((0, 2),), trained_tokens=9, uses={"p": 1})
    fields = {"format": 2, "updates": 3, "world_size": 1, "controller": progress.as_json()}
    return [_with_checksum(json.dumps(fields).encode())]


def _with_checksum(text: bytes) -> bytes:
    return b'{"crc32": %d, %s' % (zlib.crc32(text), text[1:])


def change_controller(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """The fields with the right checksum, as who wants to harm writes it; now and then the text."""
    if chance.randrange(10) == 0:
        return change_bytes(content, pool, chance)
    _, _, fields = content.partition(b", ")
    return _with_checksum(change_json(b"{" + fields, pool, chance))


def _is_checked(content: bytes) -> bool:
    head, _, fields = content.partition(b", ")
    return head == b'{"crc32": %d' % zlib.crc32(b"{" + fields)


def _read_controller(content: bytes) -> object:
    from rollcast.trainer.learner.checkpoint import read_controller

    state = read_controller(content.decode("utf-8", "replace")).controller
    return state and Progress.from_json(state)


def _metadata() -> list[bytes]:
    import torch
    from torch.distributed.checkpoint.state_dict_saver import save

    folder = scratch_folder() / "saved"
    save({"a": torch.zeros(4, 2), "b": {"c": torch.ones(3)}}, checkpoint_id=folder, no_dist=True)
    return [(folder / ".metadata").read_bytes()]


def _read_metadata(content: bytes) -> object:
    from rollcast.trainer.learner.saved_metadata import check_metadata, plain_metadata

    metadata = plain_metadata(content)
    check_metadata(metadata, ["__0_0.distcp"])
    return metadata


TARGETS = (
    Target(
        *(
            "model-config",
            lambda: [json.dumps(CONFIG).encode()],
            change_json,
            is_json,
            _read_config,
        ),
        (UserError,),
        ("memory.model_file", "memory.text_model", "memory.architecture", "memory.recurrence"),
    ),
    Target(
        *("model-weights", _headers, change_header, _has_length, _read_header, (UserError,)),
        ("memory.safetensors_headers", "memory.architecture"),
    ),
    Target(
        *("model-tokenizer", _tokenizers, change_json, is_json, _read_tokenizer, (UserError,)),
        ("tasks.tokenizer_file",),
    ),
    Target(
        "tokenizer-settings",
        lambda: [b'{"chat_template": "x", "eos_token": "y"}'],
        *(change_json, is_json, _read_tokenizer_settings, (UserError,)),
        ("tasks.tokenizer_file",),
    ),
    Target(
        *("checkpoint-state", _controllers, change_controller, _is_checked, _read_controller),
        (ValueError, MalformedProgress),
        ("trainer.control.progress", "trainer.learner.checkpoint"),
    ),
    Target(
        "checkpoint-metadata",
        _metadata,
        *(change_bytes, lambda content: content[:1] == b"\x80", _read_metadata, (ValueError,)),
        ("trainer.learner.saved_metadata",),
    ),
)
