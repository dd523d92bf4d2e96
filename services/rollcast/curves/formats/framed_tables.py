"""Tables that a console draws with lines, as rich, tabulate and stable-baselines3 do.

    │ step │ reward │           │ step   │ 10   │           | rollout/        |      |
    │ 10   │ 0.31   │           │ reward │ 0.31 │           |    ep_rew_mean  | 0.31 |

The first has a row for each step. The others are one row each; a step that they lack is in the
title above them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rollcast.curves.columns.names import counts_steps_or_epochs, measures_success
from rollcast.curves.formats import key_values
from rollcast.curves.formats.console_lines import MAX_LINE_CHARS, counters_in
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.sheet import Row, Sheet

NAME = "tables of a console"
_SIDES = "│┃║|"
_CELLS = re.compile(f"[{_SIDES}]")
_FRAME = re.compile(r"[\s│┃|+\-=:─━┄┈═╔-╬┌-╋╭-╰]+")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:[.,]\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?\s?%?|nan")


@dataclass
class _Block:
    """Lines of one table, each as its cells, and the text above it."""

    title: str
    cells: list[list[str]]


def recognises(log: LogFile) -> bool:
    """Whether tables hold a measure of success, and no line of names and values does."""
    if not any(side in log.console for side in _SIDES):
        return False
    is_log = key_values.repeats_a_measure(_rows(log.console))
    return is_log and not key_values.has_loop(log.text)


def read(log: LogFile) -> Sheet:
    """The rows of all tables, without those that count no step if others do."""
    rows = [row for row in _rows(log.console) if any(map(measures_success, row))]
    counted = [row for row in rows if any(map(counts_steps_or_epochs, row))]
    return Sheet.from_rows(NAME, counted or rows)


def _rows(text: str) -> Iterator[Row]:
    for block in _blocks(text):
        if _is_of_pairs(block):
            yield from ({**counters_in(block.title), **pairs} for pairs in _pairs(block))
            continue
        header, *body_rows = block.cells
        for cells in body_rows:
            if len(cells) == len(header) > 1 and cells != header:
                yield {
                    name: cell for name, cell in zip(header, cells, strict=True) if name and cell
                }


def _blocks(text: str) -> Iterator[_Block]:
    """Consecutive lines between sides of a frame, without the lines of the frame itself."""
    title = ""
    cells: list[list[str]] = []
    for raw in text.split("\n"):
        line = raw.strip() if len(raw) <= MAX_LINE_CHARS else ""
        if (
            len(line) > 1
            and line[0] in _SIDES
            and line[-1] in _SIDES
            and not _FRAME.fullmatch(line)
        ):
            cells.append([" ".join(cell.split()) for cell in _CELLS.split(line[1:-1])])
        elif line and _FRAME.fullmatch(line):
            continue
        else:
            if cells:
                yield _Block(title, cells)
                cells = []
            title = line or title
    if cells:
        yield _Block(title, cells)


def _is_of_pairs(block: _Block) -> bool:
    """Whether it is a table of two columns, names and values."""
    # A name and its number
    if any(len(cells) != 2 for cells in block.cells):
        return False
    valued = [cells for cells in block.cells if cells[1]]
    named = [
        cells for cells in valued if _NUMBER.fullmatch(cells[1]) and not _NUMBER.fullmatch(cells[0])
    ]
    # Share of the right cells of a table of names and values that are numbers
    return bool(named) and len(named) >= 0.5 * len(valued)


def _pairs(block: _Block) -> Iterator[Row]:
    """The rows of a table of names and values, each up to the return of a name.

    A name without a value is a section.
    """
    row: Row = {}
    section = ""
    for name, value in block.cells:
        if not value:
            section = name if name.endswith("/") else ""
        elif _NUMBER.fullmatch(value):
            if f"{section}{name}" in row:
                yield row
                row = {}
            row[f"{section}{name}"] = value.replace(",", "")
    if row:
        yield row
