"""What a reader hands over: rows, and by what name the format goes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rollcast.curves.bounds import MAX_NAME_CHARS
from rollcast.curves.curve_row import Row
from rollcast.curves.left_out import Tell
from rollcast.curves.sheet import Sheet

MAX_DEPTH = 8
MAX_FIELDS = 2_000
"""Of one row; a log of a trainer has a hundred."""
_PLAIN = frozenset({int, float, str, bool, type(None)})
RUN = "run"
"""The column that tells runs apart, where a file holds several."""


@dataclass(frozen=True)
class Found:
    """Attributes:
    format: as it is told to the user.
    sheet: its rows, in the order of the file.
    """

    format: str
    sheet: Sheet

    @classmethod
    def of_rows(cls, format_name: str, rows: Iterable[Row]) -> Found:
        """Of mappings, which are taken one after another."""
        return cls(format_name, Sheet.of_rows(rows))


class TextFormat(Protocol):
    """A format of text; each is a module."""

    NAME: str

    def recognises(self, text: str) -> bool:
        """Whether this is one, by a mark that no other format bears."""

    def rows(self, text: str, path: Path, tell: Tell) -> list[Row]:
        """Of such a text. Raises UserError."""


def flat(nested: Mapping[str, Any]) -> Row:
    """Numbers and texts of nested mappings, by the path to them: {"a": {"b": 1}} -> {"a/b": 1}.

    Lists are left out, and so is what lies deeper than 8 levels or comes after the 2,000th field. Long names are cut.
    """
    if len(nested) <= MAX_FIELDS and _PLAIN.issuperset(map(type, nested.values())):
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
                if depth < MAX_DEPTH:
                    waiting.append((f"{name}/", value, depth + 1))
            elif not isinstance(value, list):
                row[name] = value
    return row
