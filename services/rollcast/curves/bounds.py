"""How much a file of somebody else's may hold: what is more ends in one sentence, before it takes time or memory."""

from __future__ import annotations

MAX_ROWS = 2_000_000
"""Rows of a file, and lines of a text."""
MAX_COLUMNS = 10_000
"""Names of metrics in a file; a trainer logs a hundred, or some thousand where it logs every layer."""
MAX_CELLS = 100_000_000
"""Rows times columns, also where most of them are empty."""
MAX_SPELLINGS = 20
"""Columns whose names differ in nothing but upper and lower case."""
MAX_ROW_CHARS = 1 << 20
"""Of one row of a table."""
MAX_JSON_MARKS = 12_000_000
"""Brackets, commas and colons of JSON that is read at once: how many values it makes, at most."""
MAX_NAME_CHARS = 300
"""Of a metric's name at each level of nested ones; the rest is cut."""
MAX_COLUMN_NAME_CHARS = 3_000
SHOWN_CHARS = 80
"""Of a name, in a sentence."""


class TooMuch(ValueError):  # noqa: N818  (a finding, of which the reader makes a sentence with the file's name)
    """A file holds more than what is read. The message follows the name of the file."""


def refuse_above(count: int, most: int, what: str) -> None:
    """Raises TooMuch where there are more than `most`."""
    if count > most:
        raise TooMuch(f"holds more than {most:,} {what}")


def refuse_wide(num_rows: int, num_columns: int) -> None:
    """Raises TooMuch for a table that would be too large, whatever stands in it."""
    refuse_above(num_rows, MAX_ROWS, "rows")
    refuse_above(num_columns, MAX_COLUMNS, "columns")
    refuse_above(num_rows * num_columns, MAX_CELLS, "fields in its rows and columns")


def refuse_json(text: str) -> None:
    """Raises TooMuch for JSON that would make too many values."""
    if len(text) > MAX_JSON_MARKS:
        refuse_above(sum(map(text.count, "[{,:")), MAX_JSON_MARKS, "values of JSON in one piece")


def shown(name: str) -> str:
    """As a sentence has it."""
    return name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}.."
