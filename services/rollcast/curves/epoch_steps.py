"""Counters that begin again in every epoch (`Epoch 3 iter 250`): counted on if they distinguish its
evaluations.
"""

import numpy as np

from rollcast.curves.columns import find_column
from rollcast.curves.sheet import Column, Sheet
from rollcast.scaling.law.curve import Array

EPOCH_NAMES = ("epoch", "train/epoch")


def begins_again(sheet: Sheet, step: str) -> bool:
    """Whether a column counts the steps of each epoch from the beginning: it falls whenever the
    epoch rises.
    """
    epoch = find_column(list(sheet.columns), EPOCH_NAMES)
    if epoch is None:
        return False
    steps = sheet.numbers(step).values
    epochs = sheet.numbers(epoch).values
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


def counted_on(sheet: Sheet, step: str, pass_rate: str) -> Sheet | None:
    """The sheet whose counter continues through the epochs; None if no epoch has evaluations at
    several counts.

    `step`: a counter that begins again. All epochs are as long as the longest one.
    """
    epoch = find_column(list(sheet.columns), EPOCH_NAMES)
    steps = sheet.numbers(step).values
    epochs = sheet.numbers(epoch).values
    is_known = np.isfinite(steps) & np.isfinite(epochs)
    is_evaluation = is_known & np.isfinite(sheet.numbers(pass_rate).values)
    places = np.unique(np.column_stack((epochs, steps))[is_evaluation], axis=0)
    # An epoch with a fraction already says where in the epoch an evaluation is.
    if len(places) == np.unique(places[:, 0]).size or np.any(epochs[is_known] % 1):
        return None
    rows = np.flatnonzero(is_known)
    # Epochs may begin at 1, or later in the log of a resumed run.
    offsets = (epochs[rows] - epochs[rows].min()) * length_of_epoch(steps[rows])
    return sheet.with_column(step, Column(rows, (offsets + steps[rows]).tolist()))


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
    least = steps[order[is_first]]
    # A column with the same value in all rows is a setting and no counter.
    return least.size > 1 and bool(np.all(least == least[0]) and np.any(steps > least[0]))
