"""Shapes of models of which a test has the config.json alone, and files that give them to the
planner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rollcast.memory.architecture import ModelShape, model_shape, text_settings
from rollcast.memory.meta_device import shapes_on_meta_device
from rollcast.memory.safetensors_headers import WHOLE


def make_shape(config: Mapping[str, Any]) -> ModelShape:
    """By Transformers, in this process."""
    return _make_cached_shape(json.dumps(config, sort_keys=True, default=str))


@cache
def _make_cached_shape(text: str) -> ModelShape:
    config = json.loads(text)
    return model_shape(config, shapes_on_meta_device(text_settings(config)))


def make_header(weights: Mapping[str, tuple[int, ...]]) -> bytes:
    """The beginning of a safetensors file; no data follows."""
    entries = {
        name: {"dtype": "BF16", "shape": list(shape), "data_offsets": [0, 0]}
        for name, shape in weights.items()
    }
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return len(header).to_bytes(8, "little") + header


def write_model(folder: Path, config: Mapping[str, Any]) -> None:
    """config.json and the header of the weights: all that a plan reads of a model."""
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / WHOLE).write_bytes(make_header(dict(make_shape(config).weights())))
