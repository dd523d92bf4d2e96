"""A console that prints a step as a heading, and its metrics in the lines below it.

===== Iteration 12/100 =====
avg reward: 0.35
success rate: 0.41

The loop prints a line once below each heading, or below every fifth. Sampled answers are below some
headings only, or several below one.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise, starmap

from rollcast.curves.columns.names import measures_success
from rollcast.curves.formats.console_lines import (
    ConsoleLine,
    form_of_text,
    may_hold_a_value,
    names_step,
    parse_heading,
    read_line,
    refuse_many,
)
from rollcast.curves.formats.loop_forms import ChosenLines

MIN_HEADINGS = 3


@dataclass(frozen=True)
class _LineBelow:
    """Attributes:
    heading: number of the heading among all.
    text_form: the whole line without its numbers.
    """

    line: ConsoleLine
    heading: int
    text_form: str


def lines_below_headings(text: str, num_other_steps: int = 0) -> ChosenLines:
    """The lines of metrics, each with the step of the heading above it; none if no headings rise.
    Raises TooMuch.

    `num_other_steps`: read by other means; none either if headings of steps have no more different
    ones.
    """
    lines = text.split("\n")
    numbered_lines = enumerate(lines, 1)
    headings = [line for line in starmap(parse_heading, numbered_lines) if line is not None]
    form = _rising_form(headings)
    by_number = {heading.number: heading for heading in headings if heading.form == form}
    has_steps = any("epoch" not in heading.row for heading in by_number.values())
    if not by_number or (
        has_steps and len({heading.counts for heading in by_number.values()}) <= num_other_steps
    ):
        return ChosenLines()
    below: list[_LineBelow] = []
    current: ConsoleLine | None = None
    num_headings = 0
    num_parsed = 0
    for number, line in enumerate(lines, 1):
        if number in by_number:
            current = by_number[number]
            num_headings += 1
        elif current is not None and may_hold_a_value(line):
            num_parsed += 1
            refuse_many(num_parsed)
            console_line = read_line(number, line, current.row)
            if console_line is not None and "epoch" in current.row and not names_step(line):
                # `100/100 [====] - accuracy: 0.5`
                console_line = replace(console_line, row={**current.row, **console_line.row})
            elif console_line is None or console_line.counts != current.counts:
                continue
            below.append(_LineBelow(console_line, num_headings, form_of_text(line)))
    return _of_the_loop(below)


def _of_the_loop(below: list[_LineBelow]) -> ChosenLines:
    """The lines of regular forms, if one has a measure of success; else all lines if one has."""
    regular: list[_LineBelow] = []
    by_form: dict[str, list[_LineBelow]] = defaultdict(list)
    by_text: dict[str, list[_LineBelow]] = defaultdict(list)
    for item in below:
        by_form[item.line.form].append(item)
    for items in by_form.values():
        if _is_regular(items):
            regular.extend(items)
            continue
        for item in items:
            by_text[item.text_form].append(item)
    for items in by_text.values():
        regular.extend(items if _is_regular(items) else [])
    kept_lines = {item.line.number for item in regular} if any(map(_is_measured, regular)) else None
    if kept_lines is None and not any(map(_is_measured, below)):
        return ChosenLines()
    printed = [
        item.line
        for item in below
        if kept_lines is not None and item.line.number not in kept_lines and _is_measured(item)
    ]
    return ChosenLines(
        [item.line for item in below if kept_lines is None or item.line.number in kept_lines],
        printed,
    )


def _is_measured(item: _LineBelow) -> bool:
    return any(map(measures_success, item.line.row))


def _is_regular(items: list[_LineBelow]) -> bool:
    """Whether lines are each below a heading of its own, mostly after the same number
    of headings.
    """
    if len(items) < MIN_HEADINGS:
        return True
    headings = sorted({item.heading for item in items})
    gaps = Counter(next_line - previous_line for previous_line, next_line in pairwise(headings))
    # After a restart a tenth of the lines of a form may be below a heading with another one of that
    # form
    is_once = len(headings) >= 0.9 * len(items)
    # Share of the lines of a form that follow the one before after the usual number of headings
    return is_once and max(gaps.values(), default=0) >= 0.75 * (len(headings) - 1)


def _rising_form(headings: list[ConsoleLine]) -> str | None:
    """The form of the headings with the most different steps that rise; None without any."""
    num_distinct: dict[str, int] = {}
    counts = Counter(heading.form for heading in headings)
    for form, count in counts.items():
        steps = (
            [heading.counts for heading in headings if heading.form == form]
            if count >= MIN_HEADINGS
            else []
        )
        num_falls = sum(later < earlier for earlier, later in pairwise(steps))
        distinct = len(set(steps))
        # Answers that count to eight again and again have few different steps, and their steps fall
        # often.
        if distinct >= max(MIN_HEADINGS, 0.2 * count) and num_falls <= 0.25 * count:
            num_distinct[form] = distinct
    return max(num_distinct, key=lambda form: num_distinct[form], default=None)
