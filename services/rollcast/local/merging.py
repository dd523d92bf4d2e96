"""Adds an adapter to its base model, a process: `python -m rollcast.local.merging ADAPTER BASE
FOLDER DTYPE`.

Reads and writes one file of weights at a time, under the names of the base's own files:

    W <- W + alpha / rank * B A, computed in float32

in the base's dtype, or in float32 every weight of 16 bits. In 16 bits an update that is less than
half of the distance between two numbers is lost; the share of those is measured. Every other file
of the base is copied.
"""

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

ADAPTER_FILE = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
WHOLE_DTYPES = ("F32", "BF16", "F16")
"""Types of weights to which an adapter is added, by safetensors' names: others mean nothing without
their scales."""
PREFIX = "base_model.model."
OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx")
"""Files of the base that are not copied, since the adapter is not added to them."""
NOT_FETCHED = [*OTHER_WEIGHTS, "original/*"]
"""Files of a model on the hub that stay there: Transformers and vLLM read safetensors."""

CHAT_TEMPLATES = "additional_chat_templates"
"""The only folder of a base that belongs to the model."""


MergedDtype = Literal["base", "float32"]


class UnmergeableError(ValueError):
    """The files are not of one adapter and its base, as a sentence."""


@dataclass(slots=True)
class Merge:
    """Counts of the weights that a merge changed."""

    num_weights: int = 0
    """Weights to which the adapter was added."""
    num_updates: int = 0
    """Numbers in them that the adapter changes."""
    num_lost: int = 0
    """Updates that the rounding to the written dtype cancelled."""
    dtypes: list[str] = field(default_factory=list)
    """The written types of these weights, by safetensors' names."""

    @property
    def lost_share(self) -> float:
        return self.num_lost / max(1, self.num_updates)


def merge(adapter: Path, base: Path, folder: Path, dtype: MergedDtype = "base") -> Merge:
    """Write the merged model into `folder`, which is made.

    Raises UnmergeableError, OSError and SafetensorError.
    """
    from safetensors.torch import load_file

    scaling = _scaling(json.loads((adapter / ADAPTER_CONFIG).read_text()))
    if json.loads((base / "config.json").read_text()).get("quantization_config"):
        raise UnmergeableError(
            f"{base} is quantised, and an adapter is added to a model in 16 or 32 bits"
        )
    parts = load_file(adapter / ADAPTER_FILE)
    waiting = {
        name.removesuffix(".lora_A.weight") for name in parts if name.endswith(".lora_A.weight")
    }
    merge = Merge(len(waiting))
    files = sorted(base.glob("*.safetensors"))
    if not files:
        raise UnmergeableError(f"{base} holds no safetensors file")
    folder.mkdir(parents=True)
    for file in files:
        waiting -= _merge_file(file, folder / file.name, parts, scaling, dtype, merge)
    if waiting:
        first = min(waiting).removeprefix(PREFIX)
        raise UnmergeableError(
            f"{base} has no weight {first}.weight, for which {adapter} has an adapter"
        )
    for file in [*base.iterdir(), *(base / CHAT_TEMPLATES).glob("*")]:
        is_weights = file.suffix == ".safetensors" or any(
            file.match(pattern) for pattern in OTHER_WEIGHTS
        )
        if file.is_file() and not is_weights:
            target = folder / file.relative_to(base)
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, target)
    if dtype == "float32":
        _note_float32(folder)
    return merge


def _note_float32(folder: Path) -> None:
    """The files that name the dtype, or the size of all weights."""
    config = json.loads((folder / "config.json").read_text())
    for section in (config, *(value for value in config.values() if isinstance(value, dict))):
        section.update({name: "float32" for name in ("dtype", "torch_dtype") if name in section})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        listed = json.loads(index.read_text())
        listed.get("metadata", {}).pop("total_size", None)
        index.write_text(json.dumps(listed, indent=2) + "\n")


def _scaling(config: Mapping[str, Any]) -> float:
    """alpha / rank.

    Raises UnmergeableError for an adapter of another kind than `model.lora` makes.
    """
    unsupported_keys = (
        "use_dora",
        "use_rslora",
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "fan_in_fan_out",
    )
    if config.get("peft_type") != "LORA" or any(config.get(name) for name in unsupported_keys):
        raise UnmergeableError("the adapter is of another kind than model.lora makes")
    return float(config["lora_alpha"]) / float(config["r"])


def _merge_file(
    source: Path,
    target: Path,
    parts: Mapping[str, Any],
    scaling: float,
    dtype: MergedDtype,
    merge: Merge,
) -> set[str]:
    """Returns the names of the adapted layers whose weights the file has, and counts in `merge`."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    tensors = load_file(source)
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        dtypes = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118  (no mapping)
    merged_layers = set()
    for name, weight in tensors.items():
        layer = PREFIX + name.removesuffix(".weight")
        a = parts.get(f"{layer}.lora_A.weight")
        is_widened = dtype == "float32" and dtypes[name] in WHOLE_DTYPES
        if a is None:
            tensors[name] = weight.float() if is_widened else weight
            continue
        if dtypes[name] not in WHOLE_DTYPES:
            raise UnmergeableError(
                f"{source}: {name} is of type {dtypes[name]}, which is none of a model in 16 or 32 "
                "bits"
            )
        b = parts[f"{layer}.lora_B.weight"]
        if weight.shape != (b.shape[0], a.shape[1]):
            raise UnmergeableError(
                f"{source}: {name} has shape {tuple(weight.shape)}, the adapter is of another model"
            )
        update = scaling * (b.float() @ a.float())
        fp32_weight = weight.float()
        tensors[name] = (fp32_weight + update).to(fp32_weight.dtype if is_widened else weight.dtype)
        merge.num_updates += int((update != 0).sum())
        merge.num_lost += int(((update != 0) & (tensors[name] == fp32_weight)).sum())
        written_dtype = "F32" if is_widened else dtypes[name]
        if written_dtype not in merge.dtypes:
            merge.dtypes.append(written_dtype)
        merged_layers.add(layer)
    save_file(tensors, target, metadata or {"format": "pt"})
    return merged_layers


def main(arguments: list[str]) -> int:
    adapter, base, folder = map(Path, arguments[:3])
    dtype: MergedDtype = "float32" if arguments[3:] == ["float32"] else "base"
    from safetensors import SafetensorError

    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        merged = merge(adapter, base, partial, dtype)
        partial.rename(folder)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        print(f"{getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 2
    print(json.dumps(asdict(merged)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
