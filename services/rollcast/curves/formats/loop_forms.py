"""Which lines of a console a training loop prints, by their forms.

All lines of a loop that one place of the program prints share a form, and their steps rise. A
model's printed answers share none, or the form of one that is printed again and again, with the
same few steps. `printed_answers` judges single lines of forms that count the loop's steps.
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from rollcast.curves.columns.names import Stage, measure_or_count
from rollcast.curves.formats.console_lines import ConsoleLine
from rollcast.curves.formats.printed_answers import StepTimeline, printed_answers, rises_as_a_loop

MIN_SERIES_STEPS = 3
"""Different steps of lines of one form that rise by themselves."""
MIN_DISTINCT_SHARE = 0.2
"""Different steps for each line of a form. Answers that count to eight again and again have
fewer."""


@dataclass(frozen=True)
class ChosenLines:
    """Attributes:
    kept: the lines of the loop.
    printed: other lines with a measure of success, for the user.
    """

    loop_lines: list[ConsoleLine] = field(default_factory=list)
    printed: list[ConsoleLine] = field(default_factory=list)


class _Form:
    """The lines of one form, by their places among all lines of metrics."""

    def __init__(self, lines: list[ConsoleLine], line_indices: list[int]) -> None:
        self.lines = lines
        self.line_indices = line_indices
        self.counter = lines[0].counter

    @cached_property
    def stage(self) -> Stage | None:
        """The best stage of a measure of success in its lines; None without a measure."""
        names = dict.fromkeys(name for line in self.lines for name in line.row)
        measures = filter(None, map(measure_or_count, names))
        return min((measure.stage for measure in measures), default=None)

    @cached_property
    def num_distinct(self) -> int:
        return len({line.counts for line in self.lines})

    @cached_property
    def rises(self) -> bool:
        """Whether its steps mostly rise."""
        num_falls = sum(later.counts < earlier.counts for earlier, later in pairwise(self.lines))
        # Share of such lines whose step may be less than the one before; the steps of unrelated
        # answers fall half the time
        return self.counter is not None and num_falls <= 0.25 * len(self.lines)

    @property
    def is_series(self) -> bool:
        return self.rises and self.num_distinct >= MIN_SERIES_STEPS

    @cached_property
    def weight(self) -> float:
        """Its different steps, less if it repeats them, and less if all of its lines follow one
        another.
        """
        gaps = sum(later.number - earlier.number > 1 for earlier, later in pairwise(self.lines))
        # Weight of a form whose lines follow one another without any other line, as a list in one
        # answer does
        return self.num_distinct**2 / len(self.lines) * (1.0 if gaps else 0.05)

    def is_interleaved(self, other_form: "_Form") -> bool:
        """Whether lines of the other form separate most of these lines, or these lines those."""
        owners = sorted(
            [(index, 0) for index in self.line_indices]
            + [(index, 1) for index in other_form.line_indices]
        )
        num_changes = sum(earlier[1] != later[1] for earlier, later in pairwise(owners))
        # One loop prints both forms if half of the rarer one's lines stand alone between lines of
        # the other: each makes two changes.
        return num_changes >= min(len(self.line_indices), len(other_form.line_indices))


def chosen_lines(lines: list[ConsoleLine]) -> ChosenLines:
    """The lines of the loop, in their order, among the lines of metrics of one run."""
    for key in (_by_form, _by_names):
        forms = _forms(lines, key)
        if (anchor := _anchor(forms)) is not None:
            return _choose_lines(forms, anchor)
    return ChosenLines(loop_lines=lines)


def num_loop_steps(lines: list[ConsoleLine]) -> int:
    """Different steps of the loop's lines with a measure of success; 0 if none rise."""
    forms = [form for form in _forms(lines, _by_form) if form.stage is not None and form.is_series]
    return max((form.num_distinct for form in forms), default=0)


def _by_form(line: ConsoleLine) -> Hashable:
    # A JSON object may have a step that is no whole number.
    return line.form, line.counter


def _by_names(line: ConsoleLine) -> Hashable:
    return (*sorted(line.row), line.counter)


def _forms(lines: list[ConsoleLine], key: Callable[[ConsoleLine], Hashable]) -> list[_Form]:
    indices_by_key: dict[Hashable, list[int]] = defaultdict(list)
    for index, line in enumerate(lines):
        indices_by_key[key(line)].append(index)
    return [
        _Form([lines[index] for index in indices], indices) for indices in indices_by_key.values()
    ]


def _anchor(forms: list[_Form]) -> _Form | None:
    """The form of the loop's lines: of most lines, among those that go with the best form of a
    measure of success.

    None: no measure of success is at steps that rise.
    """
    measured = [
        form for form in forms if form.stage is not None and form.rises and form.num_distinct > 1
    ]
    series = [form for form in measured if form.is_series]
    if not measured:
        return None
    best = max(series or measured, key=lambda form: form.weight)
    anchor = best
    for form in forms:
        # More lines of a loop have hardly fewer different steps
        min_distinct = max(MIN_DISTINCT_SHARE * len(form.lines), 0.75 * best.num_distinct)
        is_dense = form.is_series and form.num_distinct >= min_distinct
        is_of_the_loop = is_dense and form.counter == best.counter and form.is_interleaved(best)
        if is_of_the_loop and len(form.lines) > len(anchor.lines):
            anchor = form
    return anchor


def _choose_lines(forms: list[_Form], anchor: _Form) -> ChosenLines:
    timeline = StepTimeline.from_steps(
        anchor.line_indices, [line.row[anchor.counter or ""] for line in anchor.lines]
    )
    loop_lines: list[tuple[int, ConsoleLine]] = []
    printed: list[tuple[int, ConsoleLine]] = []
    for form in forms:
        left_out = set() if form is anchor else _left_out(form, anchor, timeline)
        for line_index, line in zip(form.line_indices, form.lines, strict=True):
            if line_index not in left_out:
                loop_lines.append(
                    (line_index, line if form.counter else _with_step(line, line_index, anchor))
                )
            elif form.stage is not None and form.counter:
                printed.append((line_index, line))
    loop_lines.sort(key=lambda item: item[0])
    return ChosenLines([line for _, line in loop_lines], [line for _, line in printed])


def _with_step(line: ConsoleLine, line_index: int, anchor: _Form) -> ConsoleLine:
    """A line that names no step, with that of the loop's line before it, or of the first one."""
    counter = anchor.counter or ""
    loop_line = anchor.lines[max(bisect(anchor.line_indices, line_index) - 1, 0)]
    return replace(line, row={counter: loop_line.row[counter], **line.row})


def _left_out(form: _Form, anchor: _Form, timeline: StepTimeline) -> set[int]:
    """The places of the lines of a form that the loop did not print."""
    everything = set(form.line_indices)
    counter = anchor.counter or ""
    if _is_in_lists(form, anchor):
        return everything
    if not all(isinstance(line.row.get(counter), int) for line in form.lines):
        return set() if _goes_with(form, anchor) else everything
    if form.stage is None and not form.is_series:
        return everything
    left_out = set(
        printed_answers(timeline, form.line_indices, [line.row[counter] for line in form.lines])
    )
    # A larger share of lines out of order makes all lines of the form answers. Lines without a
    # measure of success are no loss, so a smaller share is enough for them.
    max_share = 0.1 if form.stage is None else 0.25
    return everything if len(left_out) > max_share * len(everything) else left_out


def _is_in_lists(form: _Form, anchor: _Form) -> bool:
    """Whether most lines of a form stand several between two lines of the loop, at few places: a
    bar, worked steps.
    """
    stretches = Counter(bisect(anchor.line_indices, line_index) for line_index in form.line_indices)
    # Lines before the first and behind the last line of the loop alone are other phases
    last = len(anchor.line_indices) if max(stretches) > 0 else 0
    lists = [
        count
        for stretch, count in stretches.items()
        if count >= MIN_SERIES_STEPS and stretch < last
    ]
    return 2 * sum(lists) > len(form.lines) and 2 * len(lists) <= len(anchor.lines)


def _goes_with(form: _Form, anchor: _Form) -> bool:
    """Whether lines that do not count the loop's steps are the loop's: of epochs between those of
    steps, say.
    """
    if len(form.lines) < 2 or not form.is_interleaved(anchor):
        return False
    if form.counter is None:
        return form.stage is Stage.HELD_OUT and len(form.lines) <= len(anchor.lines)
    steps = [line.counts[0] for line in form.lines]
    if not form.rises or form.num_distinct < 2 or not rises_as_a_loop(steps):
        return False
    is_dense = form.num_distinct >= MIN_DISTINCT_SHARE * len(form.lines)
    return (
        is_dense or form.stage is None or (anchor.stage is not None and form.stage > anchor.stage)
    )
