"""Values of JSON, and nested objects as rows."""

import json
from collections.abc import Mapping
from typing import Any

from rollcast.curves.sheet import MAX_NAME_CHARS, Row, refuse_json

MAX_FIELDS = 2_000
"""Fields of one row. A trainer logs a hundred."""
_PLAIN_TYPES = frozenset({int, float, str, bool, type(None)})


def json_object(text: str) -> Mapping[str, Any]:
    """The object that a text is; empty if it is not one. Raises TooMuch."""
    item = json_value(text)
    return item if isinstance(item, dict) else {}


def json_value(text: str) -> Any:
    """The value that a text is; None if it is not JSON. Raises TooMuch."""
    refuse_json(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def flat(nested: Mapping[str, Any]) -> Row:
    """Numbers and texts of nested mappings, by the path to them: {"a": {"b": 1}} -> {"a/b": 1}.

    Lists are left out, and so are fields deeper than 8 levels or after the 2,000th one. Long names
    are cut.
    """
    # Most rows are flat already, and a log may hold a million of them.
    if len(nested) <= MAX_FIELDS and _PLAIN_TYPES.issuperset(map(type, nested.values())):
        return dict(nested)
    row: Row = {}
    waiting = [("", nested, 0)]
    while waiting and len(row) < MAX_FIELDS:
        prefix, mapping, depth = waiting.pop()
        for key, value in mapping.items():
            if len(row) >= MAX_FIELDS:
                break
            name = f"{prefix}{key[:MAX_NAME_CHARS]}"
            if isinstance(value, Mapping):
                # Levels of nested objects
                if depth < 8:
                    waiting.append((f"{name}/", value, depth + 1))
            elif not isinstance(value, list):
                row[name] = value
    return row
