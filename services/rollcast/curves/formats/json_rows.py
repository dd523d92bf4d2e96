"""JSON and JSONL: one object a line, a list of objects, an object of columns, or a log inside an object.

Two frameworks write logs of this kind. verl's file logger writes a line {"step": 12, "data": {"val-core/..": 0.5, ..}}
for each step. TRL and the Trainer of transformers write trainer_state.json, or its log_history alone: an entry of
training is {"loss": .., "reward": .., "epoch": .., "step": ..}, one of an evaluation {"eval_reward": .., "epoch": ..,
"step": ..}.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.amounts import left_out
from rollcast.curves.formats.log_file import LogFile, is_json
from rollcast.curves.sheet import MAX_NAME_CHARS, Row, Sheet, in_chunks, refuse_json

NAME = "JSON"
LINES_NAME = "JSONL"
VERL_NAME = "file log of verl"
TRL_NAME = "trainer_state.json of TRL or transformers"
TRL_LOG_NAME = "log history of TRL or transformers"
TRL_STATE_FILE = "trainer_state.json"
_TRL_MARKS = frozenset({"loss", "reward", "eval_loss", "eval_reward", "train_runtime"})
"""Every entry of such a log has an epoch and a step, and one has one of these."""
MAX_DEPTH = 8
"""Levels of nested objects."""
MAX_FIELDS = 2_000
"""Fields of one row. A trainer logs a hundred."""
_PLAIN_TYPES = frozenset({int, float, str, bool, type(None)})
Objects = list[Mapping[str, Any]]


def recognises(log: LogFile) -> bool:
    return is_json(log.text)


def read(log: LogFile) -> Sheet:
    """The rows of a document or of lines. Raises UserError: none of it is an object."""
    try:
        document = _document(log.text)
    except (ValueError, RecursionError):
        return _sheet_of(LINES_NAME, _lines(log), log)
    if isinstance(document, dict) and isinstance(entries := document.get("log_history"), list):
        return Sheet.of_rows(TRL_NAME, (flat(entry) for entry in entries if isinstance(entry, dict)))
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
    is_timed = is_verl = True
    is_marked = False

    def rows() -> Iterator[Row]:
        nonlocal is_timed, is_marked, is_verl
        for item in objects:
            is_timed = is_timed and "epoch" in item and "step" in item
            is_marked = is_marked or not _TRL_MARKS.isdisjoint(item)
            is_verl = is_verl and "step" in item and isinstance(item.get("data"), dict)
            yield flat(item)

    sheet = Sheet.of_rows(format, rows())
    if sheet.num_rows == 0:
        raise UserError(f"{log.path}: holds no JSON object; write one for each evaluation, as a list or one a line")
    if is_timed and is_marked:
        return sheet.renamed(TRL_LOG_NAME, str)
    return sheet.renamed(VERL_NAME, lambda column: column.removeprefix("data/")) if is_verl else sheet


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
    longest: Objects = []
    for values in document.values():
        found: Objects = [item for item in values if isinstance(item, dict)] if isinstance(values, list) else []
        if len(found) > len(longest):
            longest = found
    return longest or [document]


def _column(values: Any) -> list[Any] | None:
    """Numbers in a list, or by their row as pandas writes a frame; None for anything else."""
    if isinstance(values, dict) and values and all(str(key).isdigit() for key in values):
        values = list(values.values())
    if not isinstance(values, list) or not values or any(isinstance(value, (dict, list)) for value in values):
        return None
    return values
