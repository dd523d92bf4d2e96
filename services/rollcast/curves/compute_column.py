"""The column of the compute, unless the user names one: device-hours, else steps, else tokens,
samples, epochs or time.

A column counts only if it has a value for almost every evaluation, and if it rises over them: a
planned number of steps and a mean length of episodes do not.
"""

import numpy as np

from rollcast.curves.columns import (
    CALL_COUNTER,
    COMPUTE_NAMES,
    EPOCHS,
    HOURS,
    SAMPLES,
    SECONDS,
    STEP_NAMES,
    STEPS,
    TIME_NAMES,
    TOKENS,
    find_column,
    find_unit,
    is_step_counter,
    words_in,
)
from rollcast.curves.epoch_steps import begins_again
from rollcast.curves.sheet import Sheet
from rollcast.scaling.law.curve import Array

_STATISTIC_WORDS = {
    "avg", "average", "mean", "max", "min", "std", "median", "length", "len", "remaining", "left",
    "eta", "limit",
    "target", "budget", "planned",
}  # fmt: skip
_CLOCK_WORDS = {"timestamp", "date", "datetime", "wall", "clock", "created", "at"}
"""Words of a moment, which also counts pauses; a duration counts from the start of the run."""
_EVALUATION_WORDS = {"eval", "evaluation", "val", "validation", "test"}


def compute_columns(sheet: Sheet, pass_rate: str) -> list[str]:
    """The columns that could be the compute, one if it is clear.

    Of device-hours and steps the first name that has a value for almost every evaluation; of others
    one for each unit. If none has, the one that has a value for most of them.
    """
    names = list(sheet.columns)
    is_evaluation = sheet.numbers(pass_rate).is_given
    num_evaluations = max(int(is_evaluation.sum()), 1)

    def covered_share(name: str) -> float:
        return int((sheet.numbers(name).is_given & is_evaluation).sum()) / num_evaluations

    def is_compute(name: str) -> bool:
        # Share of the evaluations that a column of compute must have a value for. A resumed log may
        # lack some of them.
        return covered_share(name) >= 0.95 and _rises(sheet.numbers(name).values[is_evaluation])

    sparse: list[str] = []
    hours = [
        column for name in COMPUTE_NAMES if (column := find_column(names, (name,))) is not None
    ]
    for usual in (hours, step_columns(names)):
        there = [name for name in usual if name != pass_rate and not begins_again(sheet, name)]
        if covering := [name for name in there if is_compute(name)]:
            return covering[:1]
        sparse.extend(there)
    by_unit: dict[str, str] = {}
    for name in sorted(names, key=_by_clock):
        unit = find_unit(name)
        is_counted = (
            unit in (STEPS, TOKENS, SAMPLES, SECONDS, HOURS, EPOCHS)
            and not words_in(name) & _STATISTIC_WORDS
        )
        if is_counted and name != pass_rate and is_compute(name) and not begins_again(sheet, name):
            by_unit.setdefault(unit, name)
    return list(_most_telling(by_unit).values()) or sorted(sparse, key=covered_share)[-1:]


def step_columns(names: list[str]) -> list[str]:
    """The columns that count steps, in the order in which they are looked for; W&B's counter of
    calls last.
    """
    usual = [column for name in STEP_NAMES if (column := find_column(names, (name,))) is not None]
    other_counters = [name for name in names if name not in usual and is_step_counter(name)]
    # A counter of evaluations may count 1, 2, 3 where others count optimizer steps.
    other_counters.sort(key=lambda name: bool(words_in(name) & _EVALUATION_WORDS))
    counters = dict.fromkeys([*usual, *other_counters])
    return sorted(counters, key=lambda name: name.casefold() == CALL_COUNTER)


def _most_telling(by_unit: dict[str, str]) -> dict[str, str]:
    """Without the units that say less than another one: times of a clock, or epochs next
    to tokens.
    """
    counts = {unit: name for unit, name in by_unit.items() if unit in (TOKENS, SAMPLES, STEPS)}
    if not counts and EPOCHS in by_unit:
        return {EPOCHS: by_unit[EPOCHS]}
    columns_without_epochs = {unit: name for unit, name in by_unit.items() if unit != EPOCHS}
    if counts:
        return {
            unit: name
            for unit, name in columns_without_epochs.items()
            if unit in counts or not words_in(name) & _CLOCK_WORDS
        }
    return columns_without_epochs


def _by_clock(name: str) -> tuple[bool, bool]:
    """Usual names first, durations before moments."""
    return (name.casefold() not in TIME_NAMES, bool(words_in(name) & _CLOCK_WORDS))


def _rises(values: Array) -> bool:
    """Whether (n,) values are those of a counter: not all equal, and rising or, in a reversed file,
    falling.

    Texts, such as dates, are not judged.
    """
    finite_values = values[np.isfinite(values)]
    if finite_values.size < 2:
        return True
    changes = np.diff(finite_values)
    num_up = int(np.sum(changes > 0))
    num_down = int(np.sum(changes < 0))
    if num_up + num_down == 0:
        return False
    # Share of the evaluations at which compute may fall: at restarts, or at the beginning of
    # another run
    return bool(min(num_up, num_down) <= 0.25 * finite_values.size)
