"""Lines of names and values, as a training loop of its own prints them, one line for each step or
evaluation.

    [run1]  12/100 | loss=-0.5 | reward=0.25 | acc=25.0%
    Step 12/100, Average reward: 0.25, Success rate: 0.30
    INFO:train:{"step": 12, "reward": 0.25}
    eval @ step 12: accuracy 0.31

Every other format has its own module and is asked before. Lines of JSON between them are read by
their fields.

A model's printed answer may hold such a line too; it is left out, and reported if it names a
measure of success.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress

from rollcast.curves.amounts import left_out
from rollcast.curves.columns.names import measures_success
from rollcast.curves.formats.console_lines import ConsoleLine, console_lines
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.loop_forms import MIN_SERIES_STEPS, chosen_lines, num_loop_steps
from rollcast.curves.formats.step_headings import lines_below_headings
from rollcast.curves.formats.titles import printed_titles, titles_by_row
from rollcast.curves.sheet import RUN, Row, Sheet, TooMuch, shorten_name

NAME = "lines of names and values"
BAR_MARKS = ("s/it", "it/s")
"""The speed in a bar of tqdm."""
MIN_LINES = 2
"""Lines of each of several tags that are runs."""


def recognises(log: LogFile) -> bool:
    """Whether two lines hold the same measure of success, or lines below headings with steps do."""
    with suppress(TooMuch):  # a long table, say
        rows = (line.row for line in console_lines(log.text))
        return repeats_a_measure(rows) or bool(lines_below_headings(log.text).loop_lines)
    return False


def repeats_a_measure(rows: Iterable[Row]) -> bool:
    """Whether two rows hold the same measure of success, so that a sentence or a single table is
    not taken for a log.
    """
    known_measures: set[str] = set()
    for row in rows:
        measures = set(filter(measures_success, row))
        if measures & known_measures:
            return True
        known_measures |= measures
    return False


def has_loop(text: str) -> bool:
    """Whether lines of one form, and not of JSON, hold a measure of success at steps that rise."""
    newest: dict[str, tuple[int, int]] = {}
    with suppress(TooMuch):
        for line in console_lines(text):
            if line.is_json or line.counter is None or not any(map(measures_success, line.row)):
                continue
            step = line.row[line.counter]
            newest_step, rises = newest.get(line.form, (step, 0))
            newest[line.form] = (step, rises + (step > newest_step))
            if rises + (step > newest_step) >= MIN_SERIES_STEPS - 1:
                return True
    return False


def printed_objects(text: str) -> set[int]:
    """Numbers of the lines of JSON, from 1, that hold a measure
    of success but are not the loop's.
    """
    try:
        lines = [line for line in console_lines(text) if line.is_json]
    except TooMuch:  # a long file of JSON, and hardly a console
        return set()
    loop_numbers = {line.number for line in chosen_lines(lines).loop_lines}
    measured = {line.number for line in lines if any(map(measures_success, line.row))}
    return measured - loop_numbers


def read(log: LogFile) -> Sheet:
    """One row for each line.

    Tags before the lines are runs if lines of one form have several of them.
    """
    lines = list(console_lines(log.text))
    num_steps = num_loop_steps(lines)
    below = lines_below_headings(log.text, num_steps)
    is_below = num_loop_steps(below.loop_lines) > num_steps
    lines = below.loop_lines if is_below else lines
    tags = _tags_of_runs(lines)
    by_run: dict[str, list[ConsoleLine]] = defaultdict(list)
    for line in lines:
        by_run[line.tag if line.tag in tags else ""].append(line)
    loop_lines: list[ConsoleLine] = []
    printed = list(below.printed) if is_below else []
    for run_lines in by_run.values():
        choice = chosen_lines(run_lines)
        loop_lines.extend(choice.loop_lines)
        printed.extend(choice.printed)
    loop_lines = _newest_of_bars(sorted(loop_lines, key=lambda line: line.number))
    if printed:
        number = min(line.number for line in printed)
        first = shorten_name(log.text.split("\n")[number - 1].strip())
        reason = "an answer or summary by its step, which does not follow the training loop's"
        reason += f"; the first is line {number}: {first}"
        log.tell(left_out(log.path, len(printed), "line", reason))
    rows = ({**line.row, RUN: line.tag} if line.tag in tags else line.row for line in loop_lines)
    titles = titles_by_row(printed_titles(log.text), [line.number for line in loop_lines])
    return Sheet.from_rows(NAME, rows).with_titles(titles)


def _newest_of_bars(lines: list[ConsoleLine]) -> list[ConsoleLine]:
    """The lines without those that a bar of progress shows again at the same step, with newer
    values.
    """
    newest_lines: list[ConsoleLine] = []
    for line in lines:
        is_bar = line.counter is not None and any(mark in line.form for mark in BAR_MARKS)
        if (
            is_bar
            and newest_lines
            and (newest_lines[-1].form, newest_lines[-1].counts) == (line.form, line.counts)
        ):
            newest_lines.pop()
        newest_lines.append(line)
    return newest_lines


def _tags_of_runs(lines: list[ConsoleLine]) -> set[str]:
    """The tags of lines of one form with a measure of success, if there are several, each on
    several lines.
    """
    by_form: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        if line.tag and any(map(measures_success, line.row)):
            by_form[line.form][line.tag] += 1
    several: set[str] = set()
    for counts in by_form.values():
        tags = {tag for tag, count in counts.items() if count >= MIN_LINES}
        if len(tags) >= MIN_LINES:
            several |= tags
    return several
