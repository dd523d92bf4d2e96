"""JSON and JSONL: one object a line, a list of objects, an object of columns, or a log inside an object."""

import json
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.bounds import MAX_NAME_CHARS, refuse_json
from rollcast.curves.formats import trl, verl_file
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.left_out import left_out
from rollcast.curves.sheet import Row, Sheet, in_chunks

NAME = "JSON"
LINES_NAME = "JSONL"
MAX_DEPTH = 8
"""Levels of nested objects."""
MAX_FIELDS = 2_000
"""Fields of one row. A trainer logs a hundred."""
_PLAIN_TYPES = frozenset({int, float, str, bool, type(None)})
Objects = list[Mapping[str, Any]]


def recognises(log: LogFile) -> bool:
    return log.is_json


def read(log: LogFile) -> Sheet:
    """The rows of a document or of lines. Raises UserError: none of it is an object."""
    try:
        document = _document(log.text)
    except (ValueError, RecursionError):
        return _sheet_of(LINES_NAME, _lines(log), log)
    if isinstance(document, dict) and (entries := trl.log_of(document)) is not None:
        return Sheet.of_rows(trl.NAME, (flat(entry) for entry in entries if isinstance(entry, dict)))
    return _sheet_of(NAME, _objects(document), log)


def flat(nested: Mapping[str, Any]) -> Row:
    """Numbers and texts of nested mappings, by the path to them: {"a": {"b": 1}} -> {"a/b": 1}.

    Lists are left out, and so is what is deeper than 8 levels or comes after the 2,000th field. Long names are cut.
    """
    if len(nested) <= MAX_FIELDS and _PLAIN_TYPES.issuperset(map(type, nested.values())):
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


def _document(text: str) -> Any:
    """The value of the whole text. Raises ValueError if it has several lines that are one object each."""
    first, _, others = text.lstrip().partition("\n")
    if others.strip() and _object_of(first) is not None:
        raise ValueError("one object a line")
    refuse_json(text)
    return json.loads(text)


def _sheet_of(format: str, objects: Iterable[Mapping[str, Any]], log: LogFile) -> Sheet:
    """Objects are read one after another, and only their fields are kept: a file may hold a million."""
    trl_mark = trl.TrlMark()
    verl_mark = verl_file.VerlMark()

    def rows() -> Iterator[Row]:
        for item in objects:
            trl_mark.see(item)
            verl_mark.see(item)
            yield flat(item)

    sheet = Sheet.of_rows(format, rows())
    if not len(sheet):
        raise UserError(f"{log.path}: holds no JSON object; write one for each evaluation, as a list or one a line")
    if trl_mark.is_one:
        return sheet.renamed(trl.LOG_NAME, str)
    if verl_mark.is_one:
        return sheet.renamed(verl_file.NAME, verl_file.metric_name)
    return sheet


def _lines(log: LogFile) -> Iterator[Mapping[str, Any]]:
    count = first = number = 0
    # splitlines would also split where JSON writes U+2028.
    for chunk in in_chunks(StringIO(log.text, newline="\n")):
        for line, item in zip(chunk, _objects_of(chunk), strict=True):
            number += 1
            if isinstance(item, dict):
                yield item
            elif line.strip():
                count += 1
                first = first or number
    if count:
        others = ", nor are the others" if count > 1 else ""
        log.tell(left_out(log.path, count, "line", f"line {first} is not a JSON object{others}"))


def _objects_of(lines: list[str]) -> list[Any]:
    """The value of each line, None if it is not JSON. Parsing many lines as one list takes half the time."""
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
