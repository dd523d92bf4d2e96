"""JSON and JSONL: one object a line, a list of objects, an object of columns, or a log inside an
object.

Two frameworks write logs of this kind. verl's file logger writes a line {"step": 12, "data":
{"val-core/..": 0.5, ..}} for each step. TRL and the Trainer of transformers write
trainer_state.json, or its log_history alone: an entry of training is {"loss": .., "reward": ..,
"epoch": .., "step": ..}, one of an evaluation {"eval_reward": .., "epoch": .., "step": ..}.
"""

import json
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from io import StringIO
from itertools import islice
from typing import Any

from rollcast.config.bounds import MOST_STEPS
from rollcast.curves.amounts import left_out
from rollcast.curves.columns.names import measures_success
from rollcast.curves.formats import key_values
from rollcast.curves.formats.json_tables import objects_in
from rollcast.curves.formats.log_file import JSON_LINE, LogFile, OtherFormat, is_json
from rollcast.curves.formats.nested import flat, json_object, json_value
from rollcast.curves.sheet import Row, Sheet, in_chunks, refuse_json

NAME = "JSON"
LINES_NAME = "JSONL"
VERL_NAME = "file log of verl"
TRL_NAME = "trainer_state.json of TRL or transformers"
TRL_LOG_NAME = "log history of TRL or transformers"
TRL_STATE_FILE = "trainer_state.json"
TRL_LAST_STEP = "max_steps"
_TRL_MARKS = frozenset({"loss", "reward", "eval_loss", "eval_reward", "train_runtime"})
"""Every entry of such a log has an epoch and a step, and one has one of these."""


def recognises(log: LogFile) -> bool:
    """Whether the text begins as JSON, or has lines of JSON with a measure of success in a console
    without a loop's.
    """
    return is_json(log.text) or (_has_measures(log.text) and not key_values.has_loop(log.text))


def _has_measures(text: str) -> bool:
    # Lines of JSON in a console that are looked at for a measure
    lines = (match[0] for match in islice(JSON_LINE.finditer(text), 50))
    return any(any(map(measures_success, flat(json_object(line)))) for line in lines)


def read(log: LogFile) -> Sheet:
    """The rows of a document or of lines. Raises OtherFormat: none of it is an object."""
    try:
        document = _document(log.text)
    except (ValueError, RecursionError):
        return _sheet_of_lines(log)
    if isinstance(document, dict) and isinstance(entries := document.get("log_history"), list):
        rows = (flat(entry) for entry in entries if isinstance(entry, dict))
        sheet = Sheet.from_rows(TRL_NAME, rows)
        return replace(sheet, budget_steps=_last_step(document.get(TRL_LAST_STEP)))
    return _make_sheet(NAME, objects_in(document), log)


def _last_step(value: Any) -> float | None:
    """The step at which the trainer ends; None if it trains by epochs alone (0 or less), or for
    anything else.
    """
    is_step = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST_STEPS
    return float(value) if is_step else None


def _document(text: str) -> Any:
    """The value of the whole text.

    Raises ValueError if it has several lines that are one object each.
    """
    first, _, further_lines = text.lstrip().partition("\n")
    # The limit for one piece of JSON must not refuse a long file of lines.
    if further_lines.strip() and json_value(first) is not None:
        raise ValueError("one object a line")
    refuse_json(text)
    return json.loads(text)


def _make_sheet(format: str, objects: Iterable[Mapping[str, Any]], log: LogFile) -> Sheet:
    """Objects are read one after another, and only their fields are kept: a file may hold a
    million.
    """
    is_timed = is_verl = True
    is_marked = False

    def rows() -> Iterator[Row]:
        nonlocal is_timed, is_marked, is_verl
        for item in objects:
            is_timed = is_timed and "epoch" in item and "step" in item
            is_marked = is_marked or not _TRL_MARKS.isdisjoint(item)
            is_verl = is_verl and "step" in item and isinstance(item.get("data"), dict)
            yield flat(item)

    sheet = Sheet.from_rows(format, rows())
    if sheet.num_rows == 0:
        raise OtherFormat(
            f"{log.path}: holds no JSON object; write one for each evaluation, as a list or one a "
            "line"
        )
    if is_timed and is_marked:
        return sheet.with_names(TRL_LOG_NAME, str)
    if is_verl:
        return sheet.with_names(VERL_NAME, lambda column: column.removeprefix("data/"))
    return sheet


def _sheet_of_lines(log: LogFile) -> Sheet:
    """The objects of the lines.

    Raises OtherFormat: most lines are others, which hold the loop, or no object does.
    """
    other_lines = array("L")
    sheet = _make_sheet(LINES_NAME, _lines(log, other_lines), log)
    if other_lines and (printed := key_values.printed_objects(log.text)):
        other_lines = array("L")
        sheet = _make_sheet(LINES_NAME, _lines(log, other_lines, printed), log)
        log.tell(
            left_out(log.path, len(printed), "line", "JSON that the training loop did not print")
        )
    is_other = not any(map(measures_success, sheet.columns)) or key_values.has_loop(log.text)
    if len(other_lines) > sheet.num_rows and is_other:
        raise OtherFormat(
            f"{log.path}: no JSON object in it holds a pass rate or reward; give the file that has "
            "them"
        )
    if other_lines:
        rest = ", nor are the others" if len(other_lines) > 1 else ""
        reason = f"line {other_lines[0]} is not a JSON object{rest}"
        log.tell(left_out(log.path, len(other_lines), "line", reason))
    return sheet


def _lines(
    log: LogFile, other_lines: "array[int]", printed: Collection[int] = frozenset()
) -> Iterator[Mapping[str, Any]]:
    """The objects of the lines. `printed`: numbers of lines that are left out. Those that are not
    objects are added to `other_lines`; both are counted from 1.
    """
    number = 0
    # splitlines would also split where JSON writes U+2028.
    for chunk in in_chunks(StringIO(log.text, newline="\n")):
        for line, item in zip(chunk, _parse_lines(chunk), strict=True):
            number += 1
            if isinstance(item, dict):
                if number not in printed:
                    yield item
            elif line.strip():
                other_lines.append(number)


def _parse_lines(lines: list[str]) -> list[Any]:
    """The value of each line, None if it is not JSON.

    Parsing many lines as one list takes half the time.
    """
    if all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
        refuse_json("".join(lines))
        try:
            items: list[Any] = json.loads(f"[{','.join(lines)}]")
        except (ValueError, RecursionError):
            items = []
        if len(items) == len(lines):
            return items
    return [json_value(line) for line in lines]
