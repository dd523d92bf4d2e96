"""A dump as dotted names."""

from __future__ import annotations

from typing import Any


def leaves(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names and values of a dump."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= (
            leaves(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return found
