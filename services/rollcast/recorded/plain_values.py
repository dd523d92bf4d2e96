"""Records as JSON values with their arrays aside, and back.

    Rollout(index=0, token_ids=array) <-> {"index": 0, "token_ids": {"array": "x.token_ids"}}
                                          and {"x.token_ids": array}

Only the types that records of rollouts have are known: dataclasses, tuples, lists, mappings, enums,
versions, numbers, texts and arrays.
"""

from __future__ import annotations

import time
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from rollcast.recorded.array_file import Arrays
from rollcast.wire.version import PolicyVersion


def to_plain(value: Any, name: str, arrays: Arrays) -> Any:
    """The value for JSON; its arrays are added to `arrays` under names that begin with `name`."""
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"array": name}
    if isinstance(value, PolicyVersion):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        # A trainer's step may wait for the interpreter.
        time.sleep(0)
        return {
            item.name: to_plain(getattr(value, item.name), f"{name}.{item.name}", arrays)
            for item in fields(value)
        }
    if isinstance(value, (list, tuple)):
        return [to_plain(item, f"{name}.{index}", arrays) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {key: to_plain(item, f"{name}.{key}", arrays) for key, item in value.items()}
    return value


def from_plain(kind: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of `to_plain`, for a value of type `kind`.

    Raises KeyError, TypeError and ValueError if it is no such value.
    """
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        [kind] = [item for item in get_args(kind) if item is not type(None)]
        return from_plain(kind, value, arrays)
    if kind is Any or origin is Literal:
        return value
    if origin is np.ndarray:
        return arrays[value["array"]]
    if origin in (list, tuple):
        items = get_args(kind)
        if origin is tuple and items[-1] is not Ellipsis:
            pairs = zip(items, value, strict=True)
            return tuple(from_plain(item_kind, item, arrays) for item_kind, item in pairs)
        return origin(from_plain(items[0], item, arrays) for item in value)
    if origin in (dict, Mapping):
        item_kind = get_args(kind)[1]
        return {key: from_plain(item_kind, item, arrays) for key, item in value.items()}
    if kind is PolicyVersion:
        return PolicyVersion.parse(value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{key: from_plain(hints[key], item, arrays) for key, item in value.items()})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if not isinstance(value, (int, float) if kind is float else kind):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
