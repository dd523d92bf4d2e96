"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table and an empty line; an empty text without rows."""
    lines = [f"| {' | '.join(map(in_cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines]) + "\n\n"


def in_cell(text: str) -> str:
    """Text on one line, with the characters of Markdown escaped."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
