"""The table of a trainer in a notebook, copied as text: cells between tabs or blanks, or each on a
line of its own.

Step  Training Loss  reward  reward_std          Step
1     0.000100       0.2082  0.3                 Training Loss
2     0.000200       0.2161  0.3                 reward
                                                 1
                                                 ..
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from rollcast.curves.formats import key_values
from rollcast.curves.formats.html_tables import HtmlTable, sheet_of_tables
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import MAX_COLUMNS, Sheet

NAME = "pasted table of a notebook"
_FIRST_NAMES = ("step", "epoch")
_CELL = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?%?|nan|inf|No log", re.IGNORECASE)
_WIDE_GAP = re.compile(r"\t| {2,}")
_NAME = re.compile(r"(?:Training|Validation) Loss|\S+(?: / \S+)*")
"""A name of a heading whose names and cells are all one blank apart."""
_ROW_CELL = re.compile(r"No log|\S+")


def recognises(log: LogFile) -> bool:
    """Whether a table of at least five rows holds a measure of success, and no line
    of a loop does.
    """
    return any(table.is_of_a_run for table in _tables(log.console)) and not key_values.has_loop(
        log.text
    )


def read(log: LogFile) -> Sheet:
    """The rows of the tables; several long ones of one heading are runs."""
    return sheet_of_tables(NAME, "table", list(_tables(log.console)))


def _tables(text: str) -> Iterator[HtmlTable]:
    """Tables of at least five rows whose steps rise."""
    if not any(name in text[: 1 << 20].casefold() for name in _FIRST_NAMES):
        return
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    number = 1
    for index, line in enumerate(lines):
        # Characters of a heading
        if len(line) > 5_000 or not line.casefold().startswith(_FIRST_NAMES):
            continue
        is_alone = line.casefold() in _FIRST_NAMES
        table = (
            _table_of_lines(lines, index, number)
            if is_alone
            else _table_below(lines, index, number)
        )
        # Rows that prose hardly has
        if len(table.rows) >= 5 and _rises(table):
            number += 1
            yield table


def _table_below(lines: list[str], index: int, number: int) -> HtmlTable:
    """The table whose heading is one line.

    No rows if its names are not as many as the cells of a row.
    """
    rows: list[list[str]] = []
    for row_index in range(index + 1, len(lines)):  # a slice would copy all lines for each heading
        line = lines[row_index]
        cells = _ROW_CELL.findall(line) if len(line) <= 5_000 else []
        if (
            not cells
            or not all(map(_CELL.fullmatch, cells))
            or (rows and len(cells) != len(rows[0]))
        ):
            break
        rows.append(cells)
    num_cells = len(rows[0]) if rows else 0
    names = [name.strip() for name in _WIDE_GAP.split(lines[index]) if name.strip()]
    if len(names) != num_cells:
        names = _NAME.findall(lines[index])
    return HtmlTable(number, names, rows if len(names) == num_cells > 1 else [])


def _table_of_lines(lines: list[str], index: int, number: int) -> HtmlTable:
    """The table whose cells are lines. A last row that is not whole is left out.

    A repeated first name ends the names. So the lines of a table are read for at most two headings.
    """
    names: list[str] = []
    while index < len(lines) and not _CELL.fullmatch(lines[index]) and len(names) < MAX_COLUMNS:
        if names and lines[index].casefold() == names[0].casefold():
            break
        names.append(lines[index])
        index += 1
    cells = []
    while index < len(lines) and _CELL.fullmatch(lines[index]):
        cells.append(lines[index])
        index += 1
    # Characters of a name of a column: a longer line is text
    is_table = len(names) > 1 and max(map(len, names)) <= 80
    num_whole = len(cells) // len(names) if is_table else 0
    return HtmlTable(
        number,
        names,
        [cells[row * len(names) : (row + 1) * len(names)] for row in range(num_whole)],
    )


def _rises(table: HtmlTable) -> bool:
    """Whether the first cells are numbers that rise."""
    try:
        steps = [float(row[0]) for row in table.rows]
    except ValueError:
        return False
    return all(earlier < later for earlier, later in pairwise(steps))
