"""Lines of a console log that look like readings but are not: a model's printed answer, a summary
after the training.

    step 41 | loss: 0.1 | reward: 0.5
    So at step 999: accuracy = 0.99        <- printed by a model

The training loop's lines are those of one form (`loop_forms`). A line of another form is judged by
its step. It is a reading if its step is between those of the loop's lines around it. It is also one
if its form recurs and its step is one that the loop has passed, because evaluations may end late,
or if the steps of its form rise by themselves. Those steps are the loop's, evenly spaced, or many:
a few steps of unrelated answers may rise by chance. An answer that meets these conditions is read:
real evaluations are more important than a log without any answer.
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


def printed_answers(
    loop: "StepTimeline", line_indices: Sequence[int], steps: Sequence[int]
) -> Iterator[int]:
    """Places of lines, all of one form, that are not readings.

    `line_indices`, `steps`: of each line, in order.
    """
    lines = [
        loop.line_at(line_index, step) for line_index, step in zip(line_indices, steps, strict=True)
    ]
    loop_steps = set(loop.steps)
    num_shared = sum(step in loop_steps for step in steps)
    # Share of the steps of a form that the loop prints too; an answer may be among them
    yield from _unread(lines, rises_as_a_loop(steps) or num_shared >= 0.75 * len(steps))


def rises_as_a_loop(steps: Sequence[int]) -> bool:
    """Whether most steps follow the one before, the first one 0, at the same distance, or too many
    rise for chance.
    """
    gaps = [step - earlier_step for earlier_step, step in pairwise([0, *steps])]
    rises = [gap for gap in gaps if gap > 0]
    num_falls = sum(gap < 0 for gap in gaps)
    # Of five unrelated steps one in 120 orders rises, and of eight one in 160 has at most one fall
    rises_by_itself = len({*steps}) >= 5 and num_falls <= (len(steps) - 4) // 4
    return bool(rises) and (2 * max(Counter(rises).values()) > len(rises) or rises_by_itself)


@dataclass(frozen=True)
class _Line:
    """A line that is not the loop's.

    Attributes:
        step: the line's own.
        loop_step: of the loop's last line before it; -1 before the first one.
        highest_step: of all the loop's lines before it; -1 before the first one.
        stretch: number of times that the loop's step has gone back before it, after a restart or at
            a new epoch.
        is_between: whether its step is between those of the loop's lines before and after it.
        is_at: whether it is one of these two, or 0 before the first line.
        is_last: whether no line of the loop is after it.
    """

    line_index: int
    step: int
    loop_step: int
    highest_step: int
    stretch: int
    is_between: bool
    is_at: bool
    is_last: bool


@dataclass(frozen=True)
class StepTimeline:
    """The training loop's lines, in the order of the log: place, step, highest step so far and
    stretch of each.
    """

    line_indices: list[int]
    steps: list[int]
    highest_steps: list[int]
    stretches: list[int]

    @classmethod
    def from_steps(cls, line_indices: list[int], steps: list[int]) -> "StepTimeline":
        step_array = np.array(steps, dtype=np.int64)
        goes_back = np.diff(step_array, prepend=step_array[:1]) < 0
        return cls(
            line_indices,
            steps,
            np.maximum.accumulate(step_array).tolist(),
            np.cumsum(goes_back).tolist(),
        )

    def line_at(self, line_index: int, step: int) -> _Line:
        """Where in the loop a line is."""
        next_index = bisect(self.line_indices, line_index)
        is_last = next_index == len(self.line_indices)
        if next_index == 0:
            return _Line(
                line_index,
                step,
                -1,
                -1,
                0,
                step <= self.steps[0],
                step in (0, self.steps[0]),
                is_last,
            )
        index = next_index - 1
        loop_step = self.steps[index]
        stretch = self.stretches[index]
        is_between = step >= loop_step
        if not is_last and self.stretches[next_index] == stretch:
            is_between = is_between and step <= self.steps[next_index]
        elif not is_last:
            # Here the loop's step goes back, so the line ends one stretch or begins the next one.
            is_between = is_between or step <= self.steps[next_index]
        is_at = step in self.steps[index : next_index + 1]
        highest = self.highest_steps[index]
        return _Line(line_index, step, loop_step, highest, stretch, is_between, is_at, is_last)


def _unread(lines: list[_Line], is_regular: bool) -> Iterator[int]:
    """Places of lines, all of one form, that are not readings.

    `is_regular`: their steps may be a loop's.
    """
    # Different steps of lines of one form that may be behind the loop's: one line could be anything
    recurs = len({line.step for line in lines}) >= 2
    may_be_late = is_regular and (_is_series(lines) or (recurs and not lines[0].is_last))
    newest: dict[int, int] = {}
    ahead = []
    for line in lines:
        is_late = may_be_late and line.step > newest.get(line.stretch, -1)
        # An evaluation from before a restart may end after it.
        is_of_an_earlier_stretch = may_be_late and line.step > line.loop_step
        if (line.is_between and (line.is_at or recurs)) or (
            is_late and line.step <= line.loop_step
        ):
            newest[line.stretch] = max(line.step, newest.get(line.stretch, -1))
        elif line.step > line.highest_step:
            ahead.append(line)
        elif not is_of_an_earlier_stretch:
            yield line.line_index
    yield from (
        _out_of_order(ahead)
        if is_regular and _is_series(ahead)
        else (line.line_index for line in ahead)
    )


def _out_of_order(lines: list[_Line]) -> Iterator[int]:
    """Places of the lines without which the steps of a series rise: an answer among evaluations."""
    rising_by_stretch: dict[int, list[_Line]] = defaultdict(list)
    for line in lines:
        rising = rising_by_stretch[line.stretch]
        if rising and line.step < rising[-1].step:
            # One of the two is too many: the earlier one if this one continues from the one before
            # it.
            if len(rising) > 1 and line.step < rising[-2].step:
                yield line.line_index
                continue
            yield rising.pop().line_index
        rising.append(line)


def _is_series(lines: list[_Line]) -> bool:
    """Whether the steps of lines rise by themselves, restarts of the loop aside."""
    num_falls = sum(
        later.step < earlier.step and later.stretch == earlier.stretch
        for earlier, later in pairwise(lines)
    )
    # Two steps could be of any two lines. The steps of unrelated answers fall half the time, those
    # of a loop hardly.
    return len({line.step for line in lines}) >= 3 and num_falls <= 0.25 * len(lines)
