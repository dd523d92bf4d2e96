"""Notebooks of Jupyter: the table of a trainer's progress in the outputs of its cells, or the texts
that they printed.

{"cells": [{"cell_type": "code", "outputs": [{"data": {"text/html": ["<table>", ..]}}, ..]}, ..],
"nbformat": 4}
"""

from collections.abc import Callable, Iterator
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.formats.html_tables import html_tables, sheet_of_tables
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.nested import json_value
from rollcast.curves.sheet import Sheet

NAME = "notebook"
PRINTED_NAME = "printed output of a notebook"
_MARKS = (b'"cells"', b'"nbformat"')


def recognises(log: LogFile) -> bool:
    """Whether it is JSON with the two fields that every notebook has."""
    # The format is named at either end of the file.
    sample_bytes = 1 << 16
    begin = log.content[:sample_bytes]
    ends = begin + log.content[-sample_bytes:]
    return begin.lstrip().startswith(b"{") and all(mark in ends for mark in _MARKS)


def read(log: LogFile, read_console: Callable[[LogFile], Sheet]) -> Sheet:
    """The tables of the outputs, or else their texts as a console.

    `read_console`: reads a text as any other log. Raises UserError: the outputs hold neither, and
    how to get it.
    """
    notebook = json_value(log.text)
    if notebook is None:
        raise UserError(f"{log.path}: is not a whole notebook; save it again")
    outputs = list(_outputs(notebook))
    tables = [
        table
        for number, kind, text in outputs
        if kind == "html"
        for table in html_tables(text, number)
    ]
    if any(table.is_of_a_run for table in tables):
        return sheet_of_tables(NAME, "cell", tables)
    text = "\n".join(text for _, kind, text in outputs if kind == "text")
    try:
        return read_console(LogFile(log.path, log.tell, printed=text)).with_names(PRINTED_NAME, str)
    except UserError:
        raise UserError(
            f"{log.path}: no output in this notebook holds a pass rate or reward; save it with the "
            "outputs of its cells, or write trainer.state.log_history to a JSON file and give that"
        ) from None


def _outputs(notebook: Any) -> Iterator[tuple[int, str, str]]:
    """The number of the cell, from 1, the kind, html or text, and the text of each output."""
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    for number, cell in enumerate(cells if isinstance(cells, list) else [], 1):
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        for output in outputs if isinstance(outputs, list) else []:
            if not isinstance(output, dict):
                continue
            data = output.get("data")
            mime_bundle = data if isinstance(data, dict) else {}
            if html := _join_lines(mime_bundle.get("text/html")):
                yield number, "html", html
            if text := _join_lines(output.get("text")) or _join_lines(
                mime_bundle.get("text/plain")
            ):
                yield number, "text", text


def _join_lines(lines: object) -> str:
    """A text of a notebook: whole, or as a list of its lines."""
    if isinstance(lines, list):
        return "".join(line for line in lines if isinstance(line, str))
    return lines if isinstance(lines, str) else ""
