"""JSON and JSONL: one object a line, a list of objects, an object of columns, or a log inside an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.bounds import refuse_json
from rollcast.curves.curve_row import Row
from rollcast.curves.formats import trl, verl_file
from rollcast.curves.formats.content import NO_TEXT
from rollcast.curves.formats.found import Found, flat
from rollcast.curves.formats.number_table import table_of_numbers
from rollcast.curves.left_out import Tell, left_out
from rollcast.curves.sheet import Sheet, in_chunks

Objects = list[Mapping[str, Any]]
_NUMBER = r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?"


def looks_like_json(text: str) -> bool:
    """Whether the text begins as an object or a list does; JSON never writes a name between single quotes."""
    begin = text.lstrip()[:2]
    return begin[:1] in ("{", "[") and begin != "{'"


def found(text: str, path: Path, tell: Tell) -> Found:
    """The rows of a document or of lines. Raises UserError where none of it is an object."""
    try:
        document = _document(text)
    except (ValueError, RecursionError):
        return _of_numbers(text, path, tell) or _of(_lines(text, path, tell), "JSONL", path)
    if isinstance(document, dict) and (log := trl.log_of(document)) is not None:
        return Found.of_rows(trl.NAME, (flat(entry) for entry in log if isinstance(entry, dict)))
    return _of(_objects(document), "JSON", path)


def _document(text: str) -> Any:
    """What the whole text spells. Raises ValueError where it is of several lines that are one object each."""
    first, _, others = text.lstrip().partition("\n")
    if others.strip() and _object_of(first) is not None:
        raise ValueError("one object a line")
    refuse_json(text)
    return json.loads(text)


def _of_numbers(text: str, path: Path, tell: Tell) -> Found | None:
    """Of lines that hold numbers alone, under the same names and with the same spaces, as most long logs do; else None.

    What stands between two numbers becomes one character that no text has; what is left is a table of numbers.
    """
    first, line_end, _ = text.partition("\n")
    row = _object_of(first)
    if not isinstance(row, dict) or not 0 < len(row) <= len(NO_TEXT) or {*map(type, row.values())} - {int, float}:
        return None
    names = (rf"\s*{re.escape(json.dumps(name, ensure_ascii=False))}\s*:\s*" for name in row)
    found = re.fullmatch(r"(\{" + rf"){_NUMBER}(\s*,".join(names) + rf"){_NUMBER}(\s*\}})", first)
    if found is None:
        return None
    begin, *between, end = found.groups()
    row_end = f"{end}{line_end}{begin}"
    numbers = text.removesuffix(line_end).removeprefix(begin) + f"{line_end}{begin}"
    marks = NO_TEXT[: len(row)]
    for mark, piece in zip(marks, (row_end, *between), strict=True):
        numbers = numbers.replace(piece, mark)
    table = table_of_numbers(numbers, "".join(marks[1:] + marks[:1]))
    if table is None:
        return None
    log = trl.TrlMark()
    log.see(row)

    def as_written() -> dict[str, Sequence[Any]]:
        sheet = Sheet.of_rows(map(flat, _lines(text, path, tell)))
        return {name: list(sheet.cells(name)) for name in sheet.names}

    return Found(
        trl.LOG_NAME if log.is_one else "JSONL", Sheet.of_numbers(dict(zip(row, table.T, strict=True)), as_written)
    )


def _of(objects: Iterable[Mapping[str, Any]], name: str, path: Path) -> Found:
    """Objects are taken one after another and kept as their fields alone: a file may hold a million."""
    logs: dict[str, trl.TrlMark | verl_file.VerlMark] = {
        trl.LOG_NAME: trl.TrlMark(),
        verl_file.NAME: verl_file.VerlMark(),
    }

    def seen() -> Iterator[Row]:
        for item in objects:
            for log in logs.values():
                log.see(item)
            yield flat(item)

    sheet = Sheet.of_rows(seen())
    if not len(sheet):
        raise UserError(f"{path}: holds no JSON object; write one for each evaluation, as a list or one a line")
    name = next((log_name for log_name, log in logs.items() if log.is_one), name)
    return Found(name, verl_file.unwrapped(sheet) if name == verl_file.NAME else sheet)


def _lines(text: str, path: Path, tell: Tell) -> Iterator[Mapping[str, Any]]:
    count = first = number = 0
    # splitlines would also split where JSON writes U+2028.
    for chunk in in_chunks(StringIO(text, newline="\n")):
        for line, item in zip(chunk, _objects_of(chunk), strict=True):
            number += 1
            if isinstance(item, dict):
                yield item
            elif line.strip():
                count, first = count + 1, first or number
    if count:
        others = ", nor are the others" if count > 1 else ""
        tell(left_out(path, count, "line", f"line {first} is no JSON object{others}"))


def _objects_of(lines: list[str]) -> list[Any]:
    """What stands in each line, None where that is no JSON. Read as one list they take half the time."""
    if all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
        refuse_json("".join(lines))
        try:
            items: list[Any] = json.loads(f"[{','.join(lines)}]")
        except (ValueError, RecursionError):
            items = []
        if len(items) == len(lines):
            return items
    return [_object_of(line) for line in lines]


def _object_of(line: str) -> Any:
    refuse_json(line)
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _objects(document: Any) -> Objects:
    """A list of objects, wherever in the document the longest one is; or the rows of an object of columns."""
    if isinstance(document, list):
        return [item for item in document if isinstance(item, dict)]
    if not isinstance(document, dict):
        return []
    columns = {name: _column(values) for name, values in document.items()}
    known = {name: values for name, values in columns.items() if values is not None}
    if known and len(lengths := {len(values) for values in known.values()}) == 1 and lengths != {1}:
        return [dict(zip(known, values, strict=True)) for values in zip(*known.values(), strict=True)]
    lists = [[item for item in values if isinstance(item, dict)] for values in document.values() if _is_list(values)]
    longest: Objects = max(lists, key=len, default=[])  # type: ignore[arg-type]
    return longest or [document]


def _column(values: Any) -> list[Any] | None:
    """Numbers in a list, or by their row as pandas writes a frame; None for anything else."""
    if isinstance(values, dict) and values and all(str(key).isdigit() for key in values):
        values = list(values.values())
    if not isinstance(values, list) or not values or any(isinstance(value, (dict, list)) for value in values):
        return None
    return values


def _is_list(values: Any) -> bool:
    return isinstance(values, list)
