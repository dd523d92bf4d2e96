"""Tables of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """With an empty line behind it; nothing where there are no rows."""
    lines = [f"| {' | '.join(map(in_cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines]) + "\n\n"


def in_cell(text: str) -> str:
    """On one line, and no column more."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
