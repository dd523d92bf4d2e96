"""Adds an adapter to its base model, a process: `python -m rollcast.local.merging ADAPTER BASE FOLDER`.

Reads and writes one file of weights at a time, under the names and in the dtype of the base's own files:

    W <- W + alpha / rank * B A, computed in float32

Every other file of the base is copied.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
WHOLE_DTYPES = ("F32", "BF16", "F16")
"""Types of weights to which an adapter is added, by safetensors' names: others mean nothing without their scales."""
PREFIX = "base_model.model."
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
"""Files of the base that are not copied, since the adapter is not added to them."""

CHAT_TEMPLATES = "additional_chat_templates"
"""The only folder of a base that belongs to the model."""


class UnmergeableError(ValueError):
    """The files are not of one adapter and its base, as a sentence."""


def merge(adapter: Path, base: Path, folder: Path) -> int:
    """Write the merged model into `folder`, which is made; returns how many weights were changed.

    Raises UnmergeableError, OSError and SafetensorError.
    """
    from safetensors.torch import load_file

    scaling = _scaling(json.loads((adapter / ADAPTER_CONFIG).read_text()))
    if json.loads((base / "config.json").read_text()).get("quantization_config"):
        raise UnmergeableError(f"{base} is quantised, and an adapter is added to a model in 16 or 32 bits")
    parts = load_file(adapter / ADAPTER_FILE)
    waiting = {name.removesuffix(".lora_A.weight") for name in parts if name.endswith(".lora_A.weight")}
    num_weights = len(waiting)
    files = sorted(base.glob("*.safetensors"))
    if not files:
        raise UnmergeableError(f"{base} holds no safetensors file")
    folder.mkdir(parents=True)
    for file in files:
        waiting -= _merge_file(file, folder / file.name, parts, scaling)
    if waiting:
        first = min(waiting).removeprefix(PREFIX)
        raise UnmergeableError(f"{base} has no weight {first}.weight, for which {adapter} has an adapter")
    for file in [*base.iterdir(), *(base / CHAT_TEMPLATES).glob("*")]:
        is_weights = file.suffix == ".safetensors" or any(file.match(pattern) for pattern in OTHER_WEIGHTS)
        if file.is_file() and not is_weights:
            target = folder / file.relative_to(base)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target)
    return num_weights


def _scaling(config: Mapping[str, Any]) -> float:
    """alpha / rank. Raises UnmergeableError for an adapter of another kind than `model.lora` makes."""
    others = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out")
    if config.get("peft_type") != "LORA" or any(config.get(name) for name in others):
        raise UnmergeableError("the adapter is of another kind than model.lora makes")
    return float(config["lora_alpha"]) / float(config["r"])


def _merge_file(source: Path, target: Path, parts: Mapping[str, Any], scaling: float) -> set[str]:
    """Returns the names of the adapted layers whose weights the file has."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  (no mapping)
    found = set()
    for name, weight in tensors.items():
        layer = PREFIX + name.removesuffix(".weight")
        a = parts.get(f"{layer}.lora_A.weight")
        if a is None:
            continue
        if dtypes[name] not in WHOLE_DTYPES:
            raise UnmergeableError(
                f"{source}: {name} is of type {dtypes[name]}, which is none of a model in 16 or 32 bits"
            )
        b = parts[f"{layer}.lora_B.weight"]
        if weight.shape != (b.shape[0], a.shape[1]):
            raise UnmergeableError(f"{source}: {name} has shape {tuple(weight.shape)}, the adapter is of another model")
        tensors[name] = (weight.float() + scaling * (b.float() @ a.float())).to(weight.dtype)
        found.add(layer)
    save_file(tensors, target, metadata or {"format": "pt"})
    return found


def main(arguments: list[str]) -> int:
    adapter, base, folder = map(Path, arguments)
    from safetensors import SafetensorError

    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        num_weights = merge(adapter, base, partial)
        partial.rename(folder)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        print(f"{getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 2
    print(num_weights)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
