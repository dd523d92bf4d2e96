"""Limits of a foreign file. One that exceeds them is refused in one sentence, before it takes time or memory."""

MAX_ROWS = 2_000_000
"""Rows of a file, and lines of a text."""
MAX_COLUMNS = 10_000
"""Names of metrics in a file. A trainer logs a hundred, or some thousand if it logs every layer."""
MAX_CELLS = 100_000_000
"""Rows times columns, also where most of them are empty."""
MAX_SPELLINGS = 20
"""Columns whose names differ only in upper and lower case."""
MAX_ROW_CHARS = 1 << 20
"""Characters in one row of a table."""
MAX_JSON_MARKS = 12_000_000
"""Brackets, commas and colons in one piece of JSON: an upper limit of the number of its values."""
MAX_NAME_CHARS = 300
"""Characters of a name at each level of nested objects; the rest is cut."""
MAX_COLUMN_NAME_CHARS = 3_000
SHOWN_CHARS = 80
"""Characters of a name in a sentence; the rest is cut."""


class TooMuch(ValueError):  # noqa: N818  (a finding, of which the reader makes a sentence with the file's name)
    """A file exceeds a limit. The message follows the name of the file."""


def refuse_wide(num_columns: int) -> None:
    """Raises TooMuch for a table of too many columns."""
    if num_columns > MAX_COLUMNS:
        raise TooMuch(f"holds more than {MAX_COLUMNS:,} columns")


def refuse_json(text: str) -> None:
    """Raises TooMuch for JSON that would make too many values."""
    if len(text) > MAX_JSON_MARKS and sum(map(text.count, "[{,:")) > MAX_JSON_MARKS:
        raise TooMuch(f"holds more than {MAX_JSON_MARKS:,} values of JSON in one piece")


def shown(name: str) -> str:
    """The name as a sentence shows it."""
    return name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}.."
