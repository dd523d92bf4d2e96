"""The shape of a model, from the cheapest source that knows the shapes of its weights:

`weights` in config.json -> headers of its files here -> headers of its files on the hub
                         -> Transformers' own class
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from rollcast.memory.architecture import (
    ModelShape,
    Shape,
    UncountedModelError,
    model_shape,
    text_settings,
)
from rollcast.memory.safetensors_headers import stored_here, stored_on_hub

WEIGHTS = "weights"
"""Key of a config.json that gives the shapes too: for a machine that has neither the model's files
nor Transformers."""
_LAYERS = re.compile(r"model\.layers\.(\d{1,5})-(\d{1,5})\.(.+)")


def find_model_shape(
    config: Mapping[str, Any], *, folder: Path | None = None, on_hub: str | None = None
) -> ModelShape:
    """`folder`: of config.json.

    `on_hub`: the name there, if the hub may be asked. Raises UncountedModelError.
    """
    settings = text_settings(config)
    if isinstance(listed_weights := config.get(WEIGHTS), Mapping):
        return model_shape(config, layer_by_layer(listed_weights, settings["num_hidden_layers"]))
    for stored in _find_stored_shapes(config, folder, on_hub):
        try:
            return model_shape(config, stored)
        except UncountedModelError:  # files of another layout; Transformers knows how it reads them
            continue
    return model_shape(config, _made_by_transformers(settings))


def _find_stored_shapes(
    config: Mapping[str, Any], folder: Path | None, on_hub: str | None
) -> Iterator[dict[str, Shape]]:
    """Quantised files hold other shapes than the model is trained with."""
    if "quantization_config" in config:
        return
    if folder is not None and (stored := stored_here(folder)):
        yield stored
    if on_hub is not None and (stored := stored_on_hub(on_hub)):
        yield stored


def _made_by_transformers(settings: Mapping[str, Any]) -> dict[str, Shape]:
    if find_spec("torch") is None or find_spec("transformers") is None:
        raise UncountedModelError(
            "config.json: it alone does not give the shapes of the weights without Transformers; "
            "run "
            "pip install 'rollcast[trainer]', or give the folder with the model's safetensors files"
        )
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rollcast.memory.meta_device"],
            input=json.dumps(dict(settings)),
            capture_output=True,
            text=True,
            errors="replace",
            # Transformers is imported and the model is made in about 5 s, and in 30 s on a busy
            # machine
            timeout=120.0,
            check=True,
            env=environment,
        )
        return {
            name: tuple(shape) for name, shape in json.loads(done.stdout.splitlines()[-1]).items()
        }
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        error_lines = str(getattr(error, "stderr", None) or error).strip().splitlines() or [""]
        raise UncountedModelError(
            f"config.json: Transformers makes no model of it ({error_lines[-1][:200]}); give that "
            "of a whole model"
        ) from error


def layer_by_layer(weights: Mapping[str, Any], num_layers: int) -> dict[str, Shape]:
    """`model.layers.0-35.NAME` written out as 36 weights. Raises UncountedModelError."""
    shapes: dict[str, Shape] = {}
    for name, sizes in weights.items():
        if not isinstance(sizes, list) or not all(
            isinstance(size, int) and size > 0 for size in sizes
        ):
            raise UncountedModelError(
                f"config.json: {WEIGHTS}.{name} = {sizes!r} is not a shape; copy it from `rollcast "
                "plan memory --json`"
            )
        layers = _LAYERS.fullmatch(name)
        if layers is None:
            shapes[name] = tuple(sizes)
        else:
            for index in range(int(layers[1]), min(int(layers[2]) + 1, num_layers)):
                shapes[f"model.layers.{index}.{layers[3]}"] = tuple(sizes)
    return shapes


def same_layers_together(model: ModelShape) -> dict[str, Shape]:
    """Every weight once for each range of layers that are alike: what `layer_by_layer` reads."""
    shapes = model.root | model.head
    for weights, alike in groupby(enumerate(model.layers), key=lambda layer: layer[1].weights):
        indices = [index for index, _ in alike]
        shapes |= {
            f"model.layers.{indices[0]}-{indices[-1]}.{name}": shape
            for name, shape in weights.items()
        }
    return shapes
