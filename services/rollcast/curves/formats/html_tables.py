"""Tables of HTML: what a notebook shows of a trainer's progress, and pages that were saved.

Found by their tags alone, each within a bound, so that a page made to harm takes no time.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollcast.curves.columns.names import counts_steps_or_epochs, measures_success
from rollcast.curves.formats.log_file import LogFile, OtherFormat
from rollcast.curves.sheet import RUN, Sheet, refuse_wide
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS

NAME = "tables of HTML"
_PAGE = re.compile(
    r"\s*(?:<!doctype html|<html|<table|<\?xml[^<>]{0,200}>\s*<!doctype html)", re.IGNORECASE
)
_TAG = re.compile(r"<(?P<end>/?)(?P<name>table|tr|th|td)\b[^<>]{0,2000}>", re.IGNORECASE)
_OTHER_TAG = re.compile(r"<[^<>]{0,2000}>")


@dataclass
class HtmlTable:
    """Attributes:
    number: of the cell of a notebook in which it is, or of the table on its page, from 1.
    header: names of its columns.
    rows: texts of its cells.
    """

    number: int
    header: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    @property
    def is_of_a_run(self) -> bool:
        """Whether one of its columns measures success."""
        return len(self.rows) > 1 and any(map(measures_success, self.header))

    @property
    def has_counter(self) -> bool:
        return any(map(counts_steps_or_epochs, self.header))


def recognises(log: LogFile) -> bool:
    return bool(_PAGE.match(log.text))


def read(log: LogFile) -> Sheet:
    """Raises OtherFormat: no table of the page holds a measure of success."""
    tables = list(html_tables(log.text))
    if not any(table.is_of_a_run for table in tables):
        raise OtherFormat(
            f"{log.path}: no table of this page holds a pass rate or reward; give the log that the "
            "trainer wrote"
        )
    return sheet_of_tables(NAME, "table", tables)


def sheet_of_tables(format: str, name_prefix: str, tables: list[HtmlTable]) -> Sheet:
    """The rows of tables that hold a measure of success, and steps if one does.

    Long tables of one header are runs. `name_prefix`: what the number of a table counts, for their
    names.
    """
    measured = [table for table in tables if table.is_of_a_run]
    counted = [table for table in measured if table.has_counter] or measured
    by_header: dict[tuple[str, ...], list[HtmlTable]] = {}
    for table in counted:
        by_header.setdefault(tuple(table.header), []).append(table)
    is_runs = False
    chosen: list[HtmlTable] = []
    for alike in by_header.values():
        long = [table for table in alike if len(table.rows) >= MIN_LAW_POINTS] or alike[-1:]
        is_runs = is_runs or len(long) > 1
        chosen.extend(long)
    names = [f"{name_prefix}-{table.number}" for table in chosen]
    if len(set(names)) < len(names):
        names = [f"table-{number}" for number in range(1, len(names) + 1)]
    rows = (
        dict(zip(table.header, cells, strict=False)) | ({RUN: name} if is_runs else {})
        for table, name in zip(chosen, names, strict=True)
        for cells in table.rows
    )
    return Sheet.from_rows(format, rows)


def html_tables(text: str, number: int | None = None) -> Iterator[HtmlTable]:
    """The tables of a page, in its order.

    `number`: of all of them; None = counted. Raises TooMuch.
    """
    table: HtmlTable | None = None
    row: list[str] = []
    is_heading = False
    begin: int | None = None
    num_tables = 0
    for tag in _TAG.finditer(text):
        name = tag["name"].lower()
        if begin is not None and table is not None:
            # Characters of a cell that are read; numbers and names are far shorter
            row.append(_cell(text[begin : min(tag.start(), begin + 2_000)]))
            begin = None
            refuse_wide(len(row))
        # HTML may leave out the end tag of a row, so the next row or the end of the table ends it.
        if name in ("table", "tr") and row and table is not None:
            _add_row(table, row, is_heading=is_heading)
            row = []
            is_heading = False
        if name == "table":
            if table is not None and table.rows:
                yield table
            num_tables += not tag["end"]
            # A hostile page may hold millions
            if num_tables > 1_000:
                return
            table = None if tag["end"] else HtmlTable(num_tables if number is None else number)
        elif name in ("th", "td") and not tag["end"]:
            begin = tag.end()
            is_heading = is_heading or (name == "th" and not row)
    if table is not None and table.rows:
        yield table


def _add_row(table: HtmlTable, row: list[str], *, is_heading: bool) -> None:
    """The first row of a table is its header; a frame of pandas has headings at the left of every
    row, too.
    """
    if not table.header:
        table.header = [name or f"column {number}" for number, name in enumerate(row, 1)]
    elif not (is_heading and row == table.header):
        table.rows.append(row)


def _cell(text: str) -> str:
    return " ".join(html.unescape(_OTHER_TAG.sub("", text)).split())
