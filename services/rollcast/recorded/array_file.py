"""Arrays by name in a safetensors file.

It is written here piece by piece: a library that makes the whole file in memory first would take as
much memory again, and would keep the interpreter from the threads of a trainer meanwhile.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.config.access_modes import open_for_group
from rollcast.config.errors import UserError

Arrays = dict[str, NDArray[Any]]
_TYPES = {
    np.dtype(np.bool_): "BOOL",
    np.dtype(np.uint8): "U8",
    np.dtype(np.int32): "I32",
    np.dtype(np.int64): "I64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float64): "F64",
}
"""The format's name of each type that is recorded."""


def write_arrays(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write a file, whole or not at all. Raises OSError."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": _TYPES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_suffix(".tmp")
    try:
        with open(temporary, "wb", opener=open_for_group) as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in arrays.values():
                if array.nbytes:
                    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        temporary.replace(path)
    except BaseException:  # a full disk needs the room for checkpoints
        temporary.unlink(missing_ok=True)
        raise


def load_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Arrays and metadata of a safetensors file. Raises UserError if it is damaged."""
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UserError(
            "recorded steps are read with safetensors; install it: pip install safetensors"
        ) from error
    try:
        with safe_open(path, framework="numpy") as file:
            arrays: Mapping[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return dict(arrays), dict(file.metadata() or {})
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror or 'no such file'}); give the folder of a "
            "recorded step, as RUN/recorded/step-12"
        ) from error
    except SafetensorError as error:
        raise UserError(f"{path}: is damaged ({error}); choose another step") from error
