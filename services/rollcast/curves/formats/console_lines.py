"""One line of names and values of a console: its row, and its form, which all lines share that one
place of a program prints.

    [step 40] avg_loss=-0.007 acc=0.45         form `[step #] avg_loss`: the lines of a training
                                               loop
    * Step 1: 6 beds * 10 rows per bed = 60    form `* step # : # beds * # rows per bed`: a model's
                                               printed answer
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from rollcast.curves.columns.names import (
    MeasureKind,
    Stage,
    counts_steps_or_epochs,
    find_measure,
    measure_or_count,
    measures_success,
    names_stage,
)
from rollcast.curves.columns.words import HELD_OUT_WORDS, STAGE_WORDS
from rollcast.curves.formats.nested import flat, json_object
from rollcast.curves.formats.worded_lines import repeated_forms, spaced_pairs
from rollcast.curves.sheet import MAX_STEP, Row, refuse_above

MIN_PAIRS = 2
"""Pairs in a line that names no step, except an evaluation."""
MAX_LINE_CHARS = 5_000
"""A longer line is a printed answer."""
MAX_PARSED_LINES = 500_000
"""Lines with names and values in a console. A loop prints one or some for each step."""
_NUMBER = r"[-+]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][-+]?\d{1,3})?"
_RIGHT_WORDS = "correct|solved|passed|successful|wins|won"
_STEP = re.compile(
    r"(?<![\w./-])(?P<name>global[ _]?step|training[ _]?step|train[ "
    r"_]?step|step|iteration|iter|update|epoch|episode|"
    r"batch|rollout|eval)s?['\"]?\s{0,8}[:=#@]?\s{0,8}\[?(?P<at>\d{1,12})(?:\s?/\s?\d{1,12})?(?![\w.]*[\w%])"
    rf"(?!\s?/\s?\d)(?!\s(?:\w{{1,20}} )?(?:{_RIGHT_WORDS})(?!\w))",
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
_PROGRESS_BAR = re.compile(r"\|\s?(\d{1,12})/\d{1,12} \[")
_BATCH = re.compile(r"(?<=\|)[\[\](),;:\s-]{1,6}(\d{1,12})\s?/\s?\d{1,12}(?![\w/.:])")
"""The batch behind an epoch, `Epoch: [3][250/1000]` or `[3/10][250/1000]`, once the epoch is a
bar."""
_NUMBER_TYPE = re.compile(r"\b(?:np\.\w{1,20}|tensor)\(([^()]{1,40})\)")
_SEPARATOR = re.compile(r"\s*[|,;\t]\s*|\s+[-\u2013\u2014]\s+|\s{2,}|[\[\](){}]|\s*->\s*")
_PAIR = re.compile(
    r"(?<![\w./@-])['\"]?(?P<name>[A-Za-z_][\w./@-]{0,120}(?: [A-Za-z_][\w./@-]{0,40}){0,3})['\"]?"
    rf"\s?[:=]\s?['\"]?(?P<value>{_NUMBER}|nan|NaN|inf|[Tt]rue|[Ff]alse)(?:(?P<sign>\s?%)|\s?/\s?(?P<total>\d{{1,9}})(?![\d./]))?"
    r"(?![\w.:/])"
)
_SPACED = re.compile(
    rf"(?P<name>[A-Za-z_][\w./@-]{{0,120}}(?: [A-Za-z_][\w./@-]{{0,40}}){{0,3}}) "
    rf"(?P<value>{_NUMBER})(?P<sign>%)?"
    r"(?:/(?P<total>\d{1,9}))?"
)
_AT_STEP = re.compile(
    r"(?<![\w./@-])(?P<name>[A-Za-z_][\w./@-]{0,120}(?: [A-Za-z_][\w./@-]{0,40}){0,3}?)"
    rf"(?: (?:at|after|for|on|in|of|@))? +\|[ ]{{0,3}}[:=] ?(?P<value>{_NUMBER})"
    r"(?:(?P<sign>\s?%)|\s?/\s?(?P<total>\d{1,9})(?![\d./]))?(?![\w.:/])"
)
"""`Accuracy at step 10: 0.31`, once the step is a bar."""
_SHARE_OF = r"(?P<value>\d{1,9})\s?(?:/|of|out of)\s?(?P<total>\d{1,9})"
_COUNTED = (
    re.compile(rf"(?<![\w./]){_SHARE_OF}\s(?:\w{{1,20}} )?(?P<name>{_RIGHT_WORDS})(?!\w)"),
    re.compile(rf"(?<![\w./])(?P<name>{_RIGHT_WORDS}) {_SHARE_OF}(?![\w./])"),
)
"""`31/100 correct`, `31 of 50 games won`, `won 31 of 50 games`."""
_TAG = re.compile(r"\[([A-Za-z][\w.-]{0,60})\]")
_STAGE = re.compile(r"(?<![\w./-])([A-Za-z]{3,10})(?![\w./-])")
_LEVELS = {"info", "debug", "warning", "warn", "error", "critical", "success"}
_PROCESS = re.compile(
    r"(?:local_?)?(?:rank|gpu|cuda|worker|proc|process|node|host|device)[._-]?\d*", re.IGNORECASE
)
"""Tags of a process of a run, not of a run."""
_DIGIT = re.compile(r"\d")
_WORD = re.compile(r"[A-Za-z]{2,}")
_DATES = re.compile(
    r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec|Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\b"
)
_NUMERALS = re.compile(r"\d[\d.,:]*")
_BAR = re.compile(r"[\u2580-\u259f]+|(?<=[\[|])[=#>.\- ]{3,}(?=[\]|])")
_BLANKS = re.compile(r"\s*\|\s*|\s+")
_JSON = re.compile(r"[ \t]*\[?\{\"")


@dataclass(frozen=True)
class ConsoleLine:
    """Attributes:
    number: of the line, from 1.
    form: the text before the first value, without its numbers and tags.
    row: values by name, counters as the only whole numbers, other values as texts.
    tag: the first word in brackets that may name a run; empty without any.
    is_json: whether it is an object of JSON.
    """

    number: int
    form: str
    row: Row
    tag: str
    is_json: bool = False

    @property
    def counter(self) -> str | None:
        """The name of its first counter; None without any."""
        return next((name for name, value in self.row.items() if isinstance(value, int)), None)

    @property
    def counts(self) -> tuple[int, ...]:
        """All of its counters."""
        return tuple(value for value in self.row.values() if isinstance(value, int))


def console_lines(text: str) -> Iterator[ConsoleLine]:
    """The lines of metrics.

    A line of JSON is one by its fields, never by what its texts hold. Raises TooMuch.
    """
    num_parsed = 0
    lines = text.split("\n")
    worded_forms = repeated_forms(
        (form_of_text(line), tuple(steps.values()))
        for line in islice(filter(_may_be_worded, lines), MAX_PARSED_LINES)
        if (steps := _counters(line)[0])
    )
    for number, line in enumerate(lines, 1):
        console_line = None
        is_json = _JSON.match(line) is not None
        if is_json or may_hold_a_value(line):
            num_parsed += 1
            refuse_many(num_parsed)
            console_line = _json_line(number, line) if is_json else read_line(number, line)
            if console_line is None and worded_forms and form_of_text(line) in worded_forms:
                console_line = _worded_line(number, line)
        if console_line is not None:
            yield console_line


def refuse_many(num_parsed: int) -> None:
    """Raises TooMuch for more lines than a console of a training has."""
    refuse_above(num_parsed, MAX_PARSED_LINES, "lines of names and values")


def may_hold_a_value(line: str) -> bool:
    """Whether it is worth to look for names and values in a line."""
    if len(line) > MAX_LINE_CHARS or _DIGIT.search(line) is None:
        return False
    return any(mark in line for mark in "=:|/") or names_step(line)


def names_step(line: str) -> bool:
    """Whether a word of a line is that of a counter, `step 10`."""
    return _STEP.search(line) is not None


def counters_in(line: str) -> Row:
    """The steps that a line names."""
    return _counters(line[:MAX_LINE_CHARS])[0]


def parse_heading(number: int, line: str) -> ConsoleLine | None:
    """A line that names a step and little else, for the lines below it; None for another one."""
    # Characters of a heading: longer lines are text
    if len(line) > 120 or _STEP.search(line) is None:
        return None
    counters, rest = _counters(line)
    words = _WORD.findall(rest)
    # Words of a heading, `=== Iteration 12/100 (lr 1e-6) ===`, apart from its step
    if not counters or len(words) > 4:
        return None
    return ConsoleLine(number, f"{' '.join(counters)} {form_of_text(rest)}", counters, "")


def read_line(number: int, line: str, heading: Row | None = None) -> ConsoleLine | None:
    """A line of text; None: not a line of metrics.

    `heading`: the steps that a line above it names for it.
    """
    counters, rest = _counters(_NUMBER_TYPE.sub(r"\1", line))
    counters = counters or heading or {}
    pairs: Row = {}
    first_value_offset = len(rest)
    chunk_offset = 0
    for chunk in _SEPARATOR.split(rest):
        chunk_offset = max(rest.find(chunk, chunk_offset), chunk_offset)
        for name, value, offset in _pairs(chunk):
            first_value_offset = min(first_value_offset, chunk_offset + offset)
            pairs.setdefault(name, value)
    if (
        counters
        and (measure_match := _AT_STEP.search(rest))
        and measures_success(measure_match["name"])
    ):
        first_value_offset = min(first_value_offset, measure_match.start())
        pairs.update({name: value for name, value, _ in _values([measure_match])})
    measures = filter(None, map(measure_or_count, pairs))
    has_rate = any(measure.kind < MeasureKind.REWARD for measure in measures)
    if (
        counters
        and not has_rate
        and (right := next(filter(None, (form.search(rest) for form in _COUNTED)), None))
    ):
        first_value_offset = min(first_value_offset, right.start())
        pairs["correct"] = _share(right["value"], int(right["total"]))
    if not pairs:
        return None
    leading_text = rest[:first_value_offset]
    prefix = _find_stage(leading_text)
    row: Row = dict(counters)
    for name, value in pairs.items():
        is_staged = prefix == "" or not measures_success(name) or names_stage(name)
        row.setdefault(name if is_staged else f"{prefix}/{name}", value)
    # `eval accuracy: 0.31` below the line of its step
    is_held_out = any(
        measure.stage is Stage.HELD_OUT for measure in filter(None, map(measure_or_count, row))
    )
    if not counters and not is_held_out and len(pairs) < MIN_PAIRS:
        return None
    form = f"{' '.join(counters)} {form_of_text(leading_text)} {next(iter(pairs))}"
    return ConsoleLine(number, form, row, _find_tag(line))


def _may_be_worded(line: str) -> bool:
    return "=" not in line and may_hold_a_value(line) and not _JSON.match(line)


def _worded_line(number: int, line: str) -> ConsoleLine | None:
    """A line without marks that names a step and a measure of success."""
    counters, rest = _counters(line)
    pairs = {name: value for chunk in _SEPARATOR.split(rest) for name, value in spaced_pairs(chunk)}
    if not any(map(measures_success, pairs)):
        return None
    row = {**pairs, **counters}
    return ConsoleLine(number, f"worded {form_of_text(line)}", row, _find_tag(line))


def _json_line(number: int, line: str) -> ConsoleLine | None:
    """A line that is one object with numbers."""
    if len(line) > MAX_LINE_CHARS:
        return None
    row: Row = {}
    for name, value in flat(json_object(line)).items():
        # A bool is an int, but no number.
        is_count = type(value) is int and abs(value) < MAX_STEP
        if is_count and (counts_steps_or_epochs(name) or name.casefold() == "episode"):
            row[name] = value
        elif type(value) in (int, float):
            row[name] = repr(value)
    if len(row) < MIN_PAIRS:
        return None
    return ConsoleLine(number, f"json {' '.join(sorted(row))}", row, "", is_json=True)


def _find_tag(line: str) -> str:
    """The first word in brackets that may name a run; empty without any."""
    for tag in _TAG.findall(line):
        if tag.casefold() not in _LEVELS | STAGE_WORDS and not _PROCESS.fullmatch(tag):
            return str(tag)
    return ""


def form_of_text(text: str) -> str:
    """The text without numbers, dates, bars of progress and tags, in one case."""
    text = _BAR.sub("", _TAG.sub("[]", text))
    text = _NUMERALS.sub("#", _DATES.sub("@", text))
    # Characters of a form: longer lines are answers, not messages of the loop
    return (
        _BLANKS.sub(lambda blank_match: "|" if "|" in blank_match[0] else " ", text)
        .strip()[:200]
        .casefold()
    )


def _counters(line: str) -> tuple[Row, str]:
    """The steps that a line names, and the line without them."""
    counters: Row = {}
    for step_match in _STEP.finditer(line):
        name = step_match["name"].casefold()
        if not _is_place_in_code(step_match):
            counters.setdefault(
                _STEP_NAMES.get(name, name.replace(" ", "_")), int(step_match["at"])
            )
    rest = _STEP.sub(_without_step, line)
    if list(counters) == ["epoch"] and (bar := _PROGRESS_BAR.search(rest)):
        return {**counters, "step": int(bar[1])}, rest
    if not counters:
        progress = _PROGRESS.search(rest)
        # `acc: 3/10` is a share, `Evaluating: 3/10` a bar of progress.
        pair = next(
            (pair_match for pair_match in _PAIR.finditer(rest) if _is_value(pair_match)), None
        )
        is_before = progress is not None and (pair is None or progress.start() < pair.start())
        is_before = is_before and progress is not None and not _is_share(progress)
        if progress is not None and is_before and int(progress[1]) <= int(progress[2]):
            counters["step"] = int(progress[1])
            rest = f"{rest[: progress.start()]} | {rest[progress.end() :]}"
            if (batch := _BATCH.search(rest)) and not _is_share(batch):
                counters = {"epoch": int(progress[1])}
    if list(counters) == ["epoch"] and (batch := _BATCH.search(rest)) and not _is_share(batch):
        counters["step"] = int(batch[1])
        rest = f"{rest[: batch.start()]} | {rest[batch.end() :]}"
    return counters, rest


def _is_share(progress: re.Match[str]) -> bool:
    """Whether it is a share of right answers: `31/100 correct`, `accuracy 31/100`."""
    names = progress.string[: progress.start(1)].split()[-1:]
    counted = filter(None, (form.search(progress.string) for form in _COUNTED))
    is_counted = any(
        count_match.start() <= progress.start(1) < count_match.end() for count_match in counted
    )
    return is_counted or any(map(measures_success, names))


def _is_place_in_code(step: re.Match[str]) -> bool:
    """Whether it is the function and the line that logged, `trainer:step:88`."""
    return (
        step.string[step.start() - 1 : step.start()] == ":"
        and f"{step['name']}:{step['at']}" in step[0]
    )


def _without_step(step: re.Match[str]) -> str:
    if _is_place_in_code(step):
        return step[0]
    # The word stays, because it marks the values behind it as held out.
    return " eval | " if step["name"].casefold() == "eval" else " | "


def _pairs(chunk: str) -> Iterator[tuple[str, str, int]]:
    """The names and values between two separators, and the place of each in the text."""
    begin = len(chunk) - len(chunk.lstrip(" :"))
    chunk = chunk.strip(" :")
    pair_matches = list(_PAIR.finditer(chunk))
    if not pair_matches and (spaced := _SPACED.fullmatch(chunk)):
        pair_matches = [spaced]
    yield from ((name, value, begin + offset) for name, value, offset in _values(pair_matches))


def _values(pairs: Iterable[re.Match[str]]) -> Iterator[tuple[str, str, int]]:
    """The name, the value and the place of each."""
    for pair in pairs:
        words = pair["name"].split(" ")
        while len(words) > 1 and _is_level(words[0]):
            words = words[1:]
        # A name before `=` is one word: in `done reward=0.5` `done` is not a part of it.
        if "=" in pair[0]:
            words = words[-1:]
        value = pair["value"] + (pair["sign"] or "").strip()
        if pair["total"]:
            value = _share(value, int(pair["total"])) if _is_value(pair) else ""
        if value:
            yield "_".join(words), value, pair.start()


def _is_level(word: str) -> bool:
    """Whether it is the level of a message. `SUCCESS` is loguru's, `Success rate` a name."""
    return word.casefold() in _LEVELS and (word.isupper() or word.casefold() != "success")


def _is_value(pair: re.Match[str]) -> bool:
    """Whether it is the value of a name: a number, or a share of right answers."""
    return pair["total"] is None or find_measure(pair["name"]) is not None


def _share(count: str, total: int) -> str:
    """The share that `31/50` is; an empty text if it cannot be one."""
    return repr(int(count) / total) if count.isdigit() and 0 < total >= int(count) else ""


def _find_stage(text: str) -> str:
    """eval or train, if the text before the first value says so."""
    words = {word.casefold() for word in _STAGE.findall(text)}
    if words & HELD_OUT_WORDS:
        return "eval"
    return "train" if words & {"train", "training"} else ""
