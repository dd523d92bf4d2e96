"""Lines of names and values, as a training loop of its own prints them, one line for each step or evaluation.

    [run1]  12/100 | loss=-0.5 | reward=0.25 | acc=25.0%
    Step 12/100, Average reward: 0.25, Success rate: 0.30
    INFO:train:{"step": 12, "reward": 0.25}
    eval @ step 12: accuracy 0.31

Every other format has its own module and is asked before.

A model's printed answer may hold such a line too; it is left out and reported.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterator

from rollcast.curves.amounts import left_out
from rollcast.curves.columns import words_in
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.printed_answers import printed_answers
from rollcast.curves.measures import HELD_OUT_WORDS, TRAINING_WORDS, measure_of
from rollcast.curves.sheet import RUN, Row, Sheet, shown

NAME = "lines of names and values"
MIN_LINES = 2
"""Lines with the same measure of success, so that a sentence is not taken for a log."""
MIN_PAIRS = 2
"""Pairs in a line that names no step."""
MAX_LINE_CHARS = 5_000
"""A longer line is a printed answer."""
_NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
_STEP = re.compile(
    r"(?<![\w./-])(?P<name>global[ _]?step|training[ _]?step|train[ _]?step|step|iteration|iter|update|epoch|episode|"
    r"batch|rollout|eval)s?['\"]?\s?[:=#@]?\s?\[?(?P<at>\d{1,12})(?:\s?/\s?\d{1,12})?(?![\w.]*[\w%])",
    re.IGNORECASE,
)
_STEP_NAMES = {
    "rollout": "rollout_step",
    "eval": "step",
    "iter": "iteration",
    "global step": "global_step",
    "globalstep": "global_step",
}
_PROGRESS = re.compile(r"(?<![\w/.:=])(\d{1,12})\s?/\s?(\d{1,12})(?![\w/.:])")
_NUMBER_TYPE = re.compile(r"\b(?:np\.\w{1,20}|tensor)\(([^()]{1,40})\)")
_SEPARATOR = re.compile(r"\s*[|,;\t]\s*|\s+[-\u2013\u2014]\s+|\s{2,}|[\[\](){}]|\s*->\s*")
_PAIR = re.compile(
    r"(?<![\w./@-])['\"]?(?P<name>[A-Za-z_][\w./@-]{0,120}(?: [A-Za-z_][\w./@-]{0,40}){0,3})['\"]?"
    rf"\s?[:=]\s?['\"]?(?P<value>{_NUMBER}|nan|NaN|inf)(?P<sign>\s?%)?(?![\w.:/])"
)
_SPACED = re.compile(
    rf"(?P<name>[A-Za-z_][\w./@-]{{0,120}}(?: [A-Za-z_][\w./@-]{{0,40}}){{0,3}}) (?P<value>{_NUMBER})(?P<sign>%)?"
)
_TAG = re.compile(r"\[([A-Za-z][\w.-]{0,60})\]")
_STAGE = re.compile(r"(?<![\w./-])([A-Za-z]{3,10})(?![\w./-])")
_LEVELS = {"info", "debug", "warning", "warn", "error", "critical", "success"}


def recognises(log: LogFile) -> bool:
    """Whether two lines hold the same measure of success."""
    seen: dict[str, int] = {}
    for _, row in _rows(log.console):
        for name in row:
            if name not in seen:
                seen[name] = 0 if measure_of(name) is not None else -1
            if seen[name] >= 0:
                seen[name] += 1
                if seen[name] == MIN_LINES:
                    return True
    return False


def read(log: LogFile) -> Sheet:
    """One row for each line. Tags before the lines are runs if there are several of them."""
    rows: list[Row] = []
    line_numbers = array("L")
    for number, row in _rows(log.console):
        rows.append(row)
        line_numbers.append(number)
    if len({row[RUN] for row in rows if RUN in row}) < MIN_LINES:
        for row in rows:
            row.pop(RUN, None)
    by_run: dict[str | None, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_run[row.get(RUN)].append(place)
    printed = {place for places in by_run.values() for place in printed_answers(rows, places)}
    if printed:
        number = line_numbers[min(printed)]
        first = shown(log.console.split("\n")[number - 1].strip())
        why = "an answer or summary by its step, which does not follow the training loop's"
        log.tell(left_out(log.path, len(printed), "line", f"{why}; the first is line {number}: {first}"))
    return Sheet.of_rows(NAME, (row for place, row in enumerate(rows) if place not in printed))


def _rows(text: str) -> Iterator[tuple[int, Row]]:
    """The number of each line of metrics, from 1, and its values by name."""
    for number, line in enumerate(text.split("\n"), 1):
        if ("=" in line or ":" in line or "|" in line) and len(line) <= MAX_LINE_CHARS and (row := _row(line)):
            yield number, row


def _row(line: str) -> Row:
    """The values of a line by name; empty if it is not a line of metrics."""
    counters, rest = _counters(_NUMBER_TYPE.sub(r"\1", line))
    pairs: Row = {}
    first = len(rest)
    at = 0
    for chunk in _SEPARATOR.split(rest):
        at = max(rest.find(chunk, at), at)
        for name, value in _pairs(chunk):
            first = min(first, at)
            pairs.setdefault(name, value)
    if len(pairs) < (1 if counters else MIN_PAIRS):
        return {}
    before = rest[:first]
    prefix = _stage_of(before)
    row: Row = dict(counters)
    for name, value in pairs.items():
        is_staged = prefix == "" or measure_of(name) is None or words_in(name) & (HELD_OUT_WORDS | TRAINING_WORDS)
        row.setdefault(name if is_staged else f"{prefix}/{name}", value)
    tags = [tag for tag in _TAG.findall(line) if tag.casefold() not in _LEVELS | HELD_OUT_WORDS | TRAINING_WORDS]
    if tags:
        row[RUN] = tags[0]
    return row


def _counters(line: str) -> tuple[Row, str]:
    """The steps that a line names, and the line without them."""
    counters: Row = {}
    for found in _STEP.finditer(line):
        name = found["name"].casefold()
        counters.setdefault(_STEP_NAMES.get(name, name.replace(" ", "_")), int(found["at"]))
    rest = _STEP.sub(lambda found: " eval | " if found["name"].casefold() == "eval" else " | ", line)
    if not counters:
        progress = _PROGRESS.search(rest)
        pair = _PAIR.search(rest)
        is_before = progress is not None and (pair is None or progress.start() < pair.start())
        if progress is not None and is_before and int(progress[1]) <= int(progress[2]):
            counters["step"] = int(progress[1])
            rest = f"{rest[: progress.start()]} | {rest[progress.end() :]}"
    return counters, rest


def _pairs(chunk: str) -> Iterator[tuple[str, str]]:
    """The names and values between two separators."""
    chunk = chunk.strip(" :")
    found = list(_PAIR.finditer(chunk))
    if not found and (spaced := _SPACED.fullmatch(chunk)):
        found = [spaced]
    for pair in found:
        words = pair["name"].split(" ")
        while len(words) > 1 and words[0].casefold() in _LEVELS:
            words = words[1:]
        if "=" in pair[0]:
            words = words[-1:]
        yield "_".join(words), pair["value"] + (pair["sign"] or "").strip()


def _stage_of(text: str) -> str:
    """eval or train, if the text before the first value says so."""
    words = {word.casefold() for word in _STAGE.findall(text)}
    if words & HELD_OUT_WORDS:
        return "eval"
    return "train" if words & {"train", "training"} else ""
