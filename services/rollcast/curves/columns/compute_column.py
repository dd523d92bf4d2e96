"""The column of the compute, unless the user names one: device-hours, else steps, else tokens,
samples, epochs or time.

A column counts only if it has a value for almost every evaluation, and if it rises over them: a
planned number of steps and a mean length of episodes do not. Counters that begin again in every
epoch (`Epoch 3 iter 250`) are counted on if they distinguish its evaluations.
"""

from collections.abc import Sequence, Set

import numpy as np

from rollcast.curves.amounts import Tell
from rollcast.curves.columns.choices import ComputeChoice, UsualColumns
from rollcast.curves.columns.named_column import NamedColumn, NamedColumns
from rollcast.curves.columns.units import COUNTS, EPOCHS, HOURS, SAMPLES, SECONDS, STEPS, TOKENS
from rollcast.curves.columns.words import CLOCK_WORDS, STATISTIC_WORDS, TIME_NAMES
from rollcast.curves.sheet import Column
from rollcast.scaling.law.curve import Array


def choose_compute(
    columns: NamedColumns, usual: UsualColumns, pass_rate: NamedColumn, tell: Tell
) -> ComputeChoice:
    """The columns that could be the compute; the callback receives which counters are continued."""
    sheet = pass_rate.sheet
    epoch = usual.epoch
    for step in usual.steps:
        counter = NamedColumn(step.name, sheet)
        if epoch is None or counter.name == pass_rate.name or not begins_again(counter, epoch):
            continue
        if (continued := counted_on(counter, epoch, pass_rate)) is not None:
            tell(
                f"{step.name} begins again in every epoch, so it is counted on from the end of each"
            )
            sheet |= {step.name: continued}
    columns = {name: NamedColumn(name, sheet) for name in columns}
    restarted = {
        column.name
        for column in (*usual.hours, *usual.steps)
        if begins_again(columns[column.name], epoch)
    }
    candidates = _candidates(columns, usual, pass_rate, restarted)
    return ComputeChoice(sheet, columns, [column.name for column in candidates], restarted)


def _candidates(
    columns: NamedColumns, usual: UsualColumns, pass_rate: NamedColumn, restarted: Set[str]
) -> Sequence[NamedColumn]:
    """The first column of device-hours and steps that has a value for almost every evaluation, else
    one column for each unit. If none has, the one that has a value for most evaluations.
    """
    is_evaluation = pass_rate.numbers.is_given
    num_evaluations = max(int(is_evaluation.sum()), 1)
    other_columns = {name: column for name, column in columns.items() if name != pass_rate.name}

    def covered_share(column: NamedColumn) -> float:
        return int((column.numbers.is_given & is_evaluation).sum()) / num_evaluations

    def is_compute(column: NamedColumn) -> bool:
        # Share of the evaluations that a column of compute must have a value for. A resumed log may
        # lack some of them.
        return covered_share(column) >= 0.95 and _rises(column.values[is_evaluation])

    sparse: list[NamedColumn] = []
    for group in (usual.hours, usual.steps):
        names = [column.name for column in group if column.name not in restarted]
        there = [other_columns[name] for name in names if name in other_columns]
        if (covering := next(filter(is_compute, there), None)) is not None:
            return [covering]
        sparse.extend(there)
    by_unit: dict[str, NamedColumn] = {}
    for column in sorted(other_columns.values(), key=_by_clock):
        if column.unit not in (*COUNTS, SECONDS, HOURS) or column.words & STATISTIC_WORDS:
            continue
        if is_compute(column) and not begins_again(column, usual.epoch):
            by_unit.setdefault(column.unit, column)
    return list(_most_telling(by_unit).values()) or sorted(sparse, key=covered_share)[-1:]


def _most_telling(by_unit: dict[str, NamedColumn]) -> dict[str, NamedColumn]:
    """Without the units that say less than another one: times of a clock, or epochs next
    to tokens.
    """
    counts = by_unit.keys() & {TOKENS, SAMPLES, STEPS}
    if not counts and EPOCHS in by_unit:
        return {EPOCHS: by_unit[EPOCHS]}
    return {
        unit: column
        for unit, column in by_unit.items()
        if unit in counts or (unit != EPOCHS and not (counts and column.words & CLOCK_WORDS))
    }


def _by_clock(column: NamedColumn) -> tuple[bool, bool]:
    """Usual names first, durations before moments."""
    return (column.name.casefold() not in TIME_NAMES, bool(column.words & CLOCK_WORDS))


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


def begins_again(counter: NamedColumn, epoch: NamedColumn | None) -> bool:
    """Whether a column counts the steps of each epoch from the beginning: it falls whenever the
    epoch rises.
    """
    if epoch is None:
        return False
    steps = counter.values
    epochs = epoch.values
    is_known = np.isfinite(steps) & np.isfinite(epochs)
    if _falls_as_rises(steps[is_known], epochs[is_known]) or _begin_alike(
        steps[is_known], epochs[is_known]
    ):
        return True
    # Often only the evaluation at the end of an epoch names it: the rows before it are of this
    # epoch too.
    named = np.flatnonzero(np.isfinite(epochs))
    counted = np.flatnonzero(np.isfinite(steps))
    following = np.searchsorted(named, counted)
    is_followed = following < named.size
    return _falls_as_rises(steps[counted[is_followed]], epochs[named[following[is_followed]]])


def counted_on(counter: NamedColumn, epoch: NamedColumn, pass_rate: NamedColumn) -> Column | None:
    """The counter continued through the epochs; None if no epoch has evaluations at several counts.

    `counter`: one that begins again. All epochs are as long as the longest one.
    """
    steps = counter.values
    epochs = epoch.values
    is_known = np.isfinite(steps) & np.isfinite(epochs)
    is_evaluation = is_known & np.isfinite(pass_rate.values)
    places = np.unique(np.column_stack((epochs, steps))[is_evaluation], axis=0)
    # An epoch with a fraction already says where in the epoch an evaluation is.
    if len(places) == np.unique(places[:, 0]).size or np.any(epochs[is_known] % 1):
        return None
    rows = np.flatnonzero(is_known)
    # Epochs may begin at 1, or later in the log of a resumed run.
    offsets = (epochs[rows] - epochs[rows].min()) * length_of_epoch(steps[rows])
    return Column(rows, (offsets + steps[rows]).tolist())


def length_of_epoch(steps: Array) -> float:
    """By how much the (n,) counts of each epoch are shifted from those of the one before.

    Counts from 0 on end one interval before the epoch does.
    """
    counts = np.unique(steps[np.isfinite(steps)])
    interval = float(np.diff(counts).min()) if counts.size > 1 else 1.0
    return float(counts[-1] + (interval if counts[0] == 0 else 0.0))


def _falls_as_rises(steps: Array, epochs: Array) -> bool:
    """Whether (n,) steps fall, and do so exactly where (n,) epochs rise."""
    falls = np.diff(steps) < 0
    rises = np.diff(epochs) > 0
    return bool(falls.any()) and bool(np.array_equal(falls, rises))


def _begin_alike(steps: Array, epochs: Array) -> bool:
    """Whether the steps of every epoch begin at the same count and rise, whatever was made again
    after a restart.
    """
    order = np.lexsort((steps, epochs))
    is_first = np.diff(epochs[order], prepend=np.nan) != 0
    first_steps = steps[order[is_first]]
    # A column with the same value in all rows is a setting and no counter.
    return first_steps.size > 1 and bool(
        np.all(first_steps == first_steps[0]) and np.any(steps > first_steps[0])
    )
