"""A console that prints a step as a heading, and its metrics in the lines below it.

===== Iteration 12/100 =====
avg reward: 0.35
success rate: 0.41
"""

from collections import Counter
from itertools import pairwise

from rollcast.curves.formats.console_lines import ConsoleLine, heading_of, may_hold_a_value, read_line, refuse_many
from rollcast.curves.measures import measure_of

MIN_HEADINGS = 3
MAX_FALLING_SHARE = 0.25
"""Share of the headings of a log whose step may be less than that of the one before."""
MIN_DISTINCT_SHARE = 0.2
"""Different steps for each heading. Answers that count to eight again and again have fewer."""


def lines_below_headings(text: str) -> list[ConsoleLine]:
    """The lines of metrics, each with the step of the heading above it; empty if no headings rise. Raises TooMuch."""
    lines = text.split("\n")
    headings = [found for number, line in enumerate(lines, 1) if (found := heading_of(number, line)) is not None]
    form = _rising_form(headings)
    if form is None:
        return []
    by_number = {heading.number: heading for heading in headings if heading.form == form}
    below: list[ConsoleLine] = []
    current: ConsoleLine | None = None
    num_parsed = 0
    for number, line in enumerate(lines, 1):
        if number in by_number:
            current = by_number[number]
        elif current is not None and may_hold_a_value(line):
            num_parsed += 1
            refuse_many(num_parsed)
            found = read_line(number, line, current.row)
            if found is not None and found.counts == current.counts:
                below.append(found)
    return below if any(measure_of(name) is not None for line in below for name in line.row) else []


def _rising_form(headings: list[ConsoleLine]) -> str | None:
    """The form of the headings with the most different steps that rise; None without any."""
    num_distinct: dict[str, int] = {}
    counts = Counter(heading.form for heading in headings)
    for form, count in counts.items():
        steps = [heading.counts for heading in headings if heading.form == form] if count >= MIN_HEADINGS else []
        num_falls = sum(after < before for before, after in pairwise(steps))
        distinct = len(set(steps))
        if distinct >= max(MIN_HEADINGS, MIN_DISTINCT_SHARE * count) and num_falls <= MAX_FALLING_SHARE * count:
            num_distinct[form] = distinct
    return max(num_distinct, key=lambda form: num_distinct[form], default=None)
