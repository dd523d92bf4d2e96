"""JSON for programs. It has no NaN and no infinities: they are null."""

import json
import math
from collections.abc import Callable
from typing import Any


def finite_or_none(value: float | None) -> float | None:
    """None for NaN and infinities, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def to_json(
    value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    """`default`: returns what `json` can write for any other object."""
    return json.dumps(_without_infinities(value), indent=indent, default=default, allow_nan=False)


def _without_infinities(value: Any) -> Any:
    if isinstance(value, float):
        return finite_or_none(value)
    if isinstance(value, dict):
        return {key: _without_infinities(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(item) for item in value]
    return value
