"""Inspects the user's model: its kind, its size, and its context length."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.memory.architecture import UncountedModelError
from rollcast.memory.model_file import folder_here, read_here
from rollcast.memory.text_model import known_length
from rollcast.memory.weight_shapes import find_model_shape

NOT_HERE = "not on this machine yet; `rollcast up` fetches it from the hub"
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def model_in_words(path: str) -> str:
    """Class, size and context length, as far as its config.json and its files contain them. Raises UserError."""
    try:
        found = read_here(path)
    except OSError as error:
        raise UserError(f"model.path = {path}: cannot be read ({error.strerror})") from error
    if found is None:
        return NOT_HERE
    classes = found.get("architectures")
    known = [
        str(classes[0]) if isinstance(classes, list) and classes else None,
        _size(path, found),
        None if (length := known_length(found)) is None else f"context of {length:,} tokens",
    ]
    return ", ".join(one for one in known if one) or "its config.json says neither class nor size"


def _size(path: str, found: Mapping[str, Any]) -> str | None:
    """Parameters if the architecture is known, else the size of its weights on the disk."""
    try:
        model = find_model_shape(found, folder=folder_here(path))
        return f"{_short(model.num_parameters).strip()} parameters"
    except UncountedModelError:
        stored = sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))
        return f"{_short(stored)}B of weights" if stored else None


def _short(number: int) -> str:
    for size, unit in _UNITS:
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} "
