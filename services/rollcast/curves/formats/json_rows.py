"""JSON and JSONL: one object a line, a list of objects, an object of columns, or a log inside an object.

Two frameworks write logs of this kind. verl's file logger writes a line {"step": 12, "data": {"val-core/..": 0.5, ..}}
for each step. TRL and the Trainer of transformers write trainer_state.json, or its log_history alone: an entry of
training is {"loss": .., "reward": .., "epoch": .., "step": ..}, one of an evaluation {"eval_reward": .., "epoch": ..,
"step": ..}.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from io import StringIO
from itertools import islice
from typing import Any

from rollcast.config.bounds import MOST_STEPS
from rollcast.curves.amounts import left_out
from rollcast.curves.columns import STEP_NAMES, is_step_counter, words_in
from rollcast.curves.formats.log_file import JSON_LINE, LogFile, OtherFormat, is_json
from rollcast.curves.measures import HELD_OUT_WORDS, TRAINING_WORDS, measure_of
from rollcast.curves.sheet import MAX_NAME_CHARS, Row, Sheet, in_chunks, refuse_json

NAME = "JSON"
LINES_NAME = "JSONL"
VERL_NAME = "file log of verl"
TRL_NAME = "trainer_state.json of TRL or transformers"
TRL_LOG_NAME = "log history of TRL or transformers"
TRL_STATE_FILE = "trainer_state.json"
TRL_LAST_STEP = "max_steps"
_TRL_MARKS = frozenset({"loss", "reward", "eval_loss", "eval_reward", "train_runtime"})
"""Every entry of such a log has an epoch and a step, and one has one of these."""
MAX_DEPTH = 8
"""Levels of nested objects."""
MAX_SAMPLED_LINES = 50
"""Lines of JSON in a console that are looked at for a measure."""
MAX_TABLE_DEPTH = 3
"""Levels of objects in which tables are looked for."""
MAX_TABLES = 100
STAGE_WORDS = HELD_OUT_WORDS | TRAINING_WORDS
SCALAR_NAMES = ("wall_time", "step", "value")
SETTINGS_WORDS = {"config", "hparams", "args", "params", "settings"}
EPOCH_NAMES = ("epoch", "epochs")
MAX_FIELDS = 2_000
"""Fields of one row. A trainer logs a hundred."""
_PLAIN_TYPES = frozenset({int, float, str, bool, type(None)})
Objects = list[Mapping[str, Any]]


def recognises(log: LogFile) -> bool:
    """Whether the text begins as JSON, or has lines of JSON with a measure of success behind lines of a console."""
    return is_json(log.text) or _has_measures(log.text)


def _has_measures(text: str) -> bool:
    lines = (found[0] for found in islice(JSON_LINE.finditer(text), MAX_SAMPLED_LINES))
    return any(measure_of(name) is not None for line in lines for name in flat(_mapping(line)))


def _mapping(line: str) -> Mapping[str, Any]:
    """The object of a line; empty if it is not one."""
    item = _object_of(line)
    return item if isinstance(item, dict) else {}


def read(log: LogFile) -> Sheet:
    """The rows of a document or of lines. Raises OtherFormat: none of it is an object."""
    try:
        document = _document(log.text)
    except (ValueError, RecursionError):
        return _sheet_of_lines(log)
    if isinstance(document, dict) and isinstance(entries := document.get("log_history"), list):
        sheet = Sheet.of_rows(TRL_NAME, (flat(entry) for entry in entries if isinstance(entry, dict)))
        return replace(sheet, budget_steps=_last_step(document.get(TRL_LAST_STEP)))
    return _sheet_of(NAME, _objects(document), log)


def _last_step(value: Any) -> float | None:
    """The step at which the trainer ends; None if it trains by epochs alone (0 or less), or for anything else."""
    is_step = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_STEPS
    return float(value) if is_step else None


def flat(nested: Mapping[str, Any]) -> Row:
    """Numbers and texts of nested mappings, by the path to them: {"a": {"b": 1}} -> {"a/b": 1}.

    Lists are left out, and so are fields deeper than 8 levels or after the 2,000th one. Long names are cut.
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
        raise OtherFormat(f"{log.path}: holds no JSON object; write one for each evaluation, as a list or one a line")
    if is_timed and is_marked:
        return sheet.renamed(TRL_LOG_NAME, str)
    return sheet.renamed(VERL_NAME, lambda column: column.removeprefix("data/")) if is_verl else sheet


def _sheet_of_lines(log: LogFile) -> Sheet:
    """The objects of the lines. Raises OtherFormat: most lines are others, and no object holds a measure of success."""
    others = _OtherLines()
    sheet = _sheet_of(LINES_NAME, _lines(log, others), log)
    if others.count > sheet.num_rows and not any(measure_of(name) is not None for name in sheet.columns):
        raise OtherFormat(f"{log.path}: no JSON object in it holds a pass rate or reward; give the file that has them")
    if others.count:
        rest = ", nor are the others" if others.count > 1 else ""
        log.tell(left_out(log.path, others.count, "line", f"line {others.first} is not a JSON object{rest}"))
    return sheet


@dataclass
class _OtherLines:
    """Attributes:
    count: lines that are not objects.
    first: the number of the first one, from 1.
    """

    count: int = 0
    first: int = 0


def _lines(log: LogFile, others: _OtherLines) -> Iterator[Mapping[str, Any]]:
    number = 0
    # splitlines would also split where JSON writes U+2028.
    for chunk in in_chunks(StringIO(log.text, newline="\n")):
        for line, item in zip(chunk, _objects_of(chunk), strict=True):
            number += 1
            if isinstance(item, dict):
                yield item
            elif line.strip():
                others.count += 1
                others.first = others.first or number


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
    """The rows of every table in the document: lists of objects, and objects of columns of one length.

    Of several tables, as of training and of evaluation, the path to each is put before its names, and their rows are in
    the order of their steps.
    """
    if isinstance(document, list):
        return [item for item in document if isinstance(item, dict)] or _scalars(document)
    if not isinstance(document, dict):
        return []
    if len(document) > 1 and all(key.isdigit() and isinstance(item, dict) for key, item in document.items()):
        return [{"step": int(key), **item} for key, item in document.items()]
    tables = list(islice(_tables("", document, 0), MAX_TABLES))
    if not tables:
        return [document]
    longest = max(tables, key=lambda table: len(table.rows))
    staged = [table for table in tables if words_in(table.path) & STAGE_WORDS or table.path == longest.path]
    if len(staged) == 1:
        return longest.rows
    rows = [row for table in staged for row in table.named_rows()]
    counter = next((name for name in STEP_NAMES if all(isinstance(row.get(name), (int, float)) for row in rows)), None)
    return rows if counter is None else sorted(rows, key=lambda row: row[counter])


def _scalars(document: list[Any]) -> Objects:
    """Lists of step and value, or of time, step and value, as TensorBoard's page downloads them."""
    widths = {len(item) if isinstance(item, list) else 0 for item in document}
    if widths not in ({len(SCALAR_NAMES)}, {len(SCALAR_NAMES) - 1}):
        return []
    names = SCALAR_NAMES[-widths.pop() :]
    return [dict(zip(names, item, strict=True)) for item in document]


@dataclass(frozen=True)
class _Table:
    """Attributes:
    path: the names that lead to it in the document.
    rows: one mapping for each row.
    """

    path: str
    rows: Objects

    def named_rows(self) -> Objects:
        """The rows with the path before every name, apart from those that count steps or epochs."""
        return [{self._full_name(name): value for name, value in flat(row).items()} for row in self.rows]

    def _full_name(self, name: str) -> str:
        is_shared = self.path == "" or is_step_counter(name) or name in EPOCH_NAMES
        return name if is_shared else f"{self.path}/{name}"


def _tables(path: str, document: Mapping[str, Any], depth: int) -> Iterator[_Table]:
    """The tables in an object, and in those within it."""
    columns = {name: _column(values) for name, values in document.items()}
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, values in columns.items():
        if values is not None and len(values) > 1:
            by_length.setdefault(len(values), {})[name] = values
    for same in by_length.values():
        if len(same) > 1:
            yield _Table(path, [dict(zip(same, values, strict=True)) for values in zip(*same.values(), strict=True)])
    for name, value in document.items():
        if columns[name] is not None:
            continue
        if words_in(name) & SETTINGS_WORDS:
            continue
        below = f"{path}/{name}".removeprefix("/")
        if isinstance(value, list):
            objects: Objects = [item for item in value if isinstance(item, dict)]
            if objects:
                yield _Table(below, objects)
        elif isinstance(value, dict) and depth < MAX_TABLE_DEPTH:
            yield from _tables(below, value, depth + 1)


def _column(values: Any) -> list[Any] | None:
    """Numbers in a list, or by their row as pandas writes a frame; None for anything else."""
    if isinstance(values, dict) and values and all(str(key).isdigit() for key in values):
        values = list(values.values())
    if not isinstance(values, list) or not values or any(isinstance(value, (dict, list)) for value in values):
        return None
    return values
