"""The rows at which a log goes back because a training was started again, and the incarnations
between them.

Rows of one kind (the evaluations, or rows with the same columns) rise while one process trains. A
row that is merely printed late goes back alone, and the rows after it continue above the level that
had been reached.
"""

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.sheet import Mask, Sheet
from rollcast.scaling.law.curve import Array

MAX_RESTARTS_PER_ROW = 0.25
"""A file that seems to hold more restarts is not in the order of time."""
MIN_STEPS_AGAIN = 3
"""Different steps below the level that had been reached, after which a log has gone back whatever
its rows hold."""
MAX_STRETCHES = 1_000
"""Stretches of a log between restarts that are looked at one by one. No run is restarted as
often."""
Rows = NDArray[np.int64]


def row_kinds(sheet: Sheet, is_evaluation: Mask) -> Rows:
    """(n,) a number for each row, equal for evaluations, and for other rows with fields in the same
    columns.
    """
    # The random numbers of a row's columns are combined by xor, so equal results mean equal
    # columns.
    random = np.random.default_rng(0)
    kinds = np.zeros(sheet.num_rows, dtype=np.int64)
    for column in sheet.columns.values():
        kinds[column.rows] ^= random.integers(1, 2**62)
    # 0: the kind of an evaluation; all others are drawn from 1 on.
    kinds[is_evaluation] = 0
    return kinds


def going_back(sheet: Sheet, counter: Array, is_evaluation: Mask) -> Rows:
    """The rows, ascending, from which on a log counts again from an earlier place.

    `counter`: (n,) steps, or what else rises, nan if unknown. In a file that is not in order of
    time, every fall.
    """
    restart_rows, _ = _falls(sheet, counter, is_evaluation)
    return restart_rows


def stray_rows(sheet: Sheet, counter: Array, is_evaluation: Mask) -> Rows:
    """The rows, ascending, at which a log falls back for at most three rows and goes on above, as
    if without them.
    """
    _, strays = _falls(sheet, counter, is_evaluation)
    return strays


def _falls(sheet: Sheet, counter: Array, is_evaluation: Mask) -> tuple[Rows, Rows]:
    """The rows from which on a log counts again, and its stray rows."""
    rows = np.flatnonzero(np.isfinite(counter))
    counts = counter[rows]
    changes = np.diff(counts)
    falls = np.flatnonzero(changes < 0) + 1
    if falls.size == 0 or is_unordered(counts):
        return rows[falls], rows[:0]
    rises = changes[changes > 0]
    interval = float(np.median(rises)) if rises.size else 0.0
    kinds = row_kinds(sheet, is_evaluation)[rows].tolist()
    steps = counts.tolist()
    newest_step_by_kind: dict[int, float] = {}
    restart_rows: list[int] = []
    strays: list[int] = []
    done = 0
    for fall in falls.tolist():
        if fall < done:
            continue  # among strays
        newest_step_by_kind.update(zip(kinds[done:fall], steps[done:fall], strict=True))
        done = fall
        if not _has_gone_back(steps, kinds, newest_step_by_kind, fall):
            continue
        if num_strays := _num_strays(steps, fall, interval):
            done = fall + num_strays
            strays.extend(range(fall, done))
        else:
            restart_rows.append(fall)
            # Otherwise a row that is printed late after this restart would look like a second
            # restart.
            newest_step_by_kind.clear()
    return rows[restart_rows], rows[strays]


def _num_strays(steps: list[float], fall: int, interval: float) -> int:
    """How many rows from a fall on are strays; 0 if they are those of a restart or
    of another run.
    """
    reached = steps[fall - 1]
    # Up to three rows that fall back before the log goes on above are no restart: lines that a
    # model quotes, say
    end = next(
        (
            row_index
            for row_index in range(fall, min(fall + 4, len(steps)))
            if steps[row_index] > reached
        ),
        fall,
    )
    low = steps[fall:end]
    # Rows that reach the level again redo steps, and rows from the first step on may begin another
    # run.
    if not low or low[-1] == reached or low[0] == steps[0]:
        return 0
    newest_interval = max(interval, reached - steps[fall - 2]) if fall > 1 else interval
    # Intervals from the row before them to the next row, if that one continues the run
    is_continued = steps[end] - reached <= 2.0 * newest_interval
    # Intervals from the last of them to the next row. After a restart all rows between are there
    # again.
    skips = steps[end] - low[-1] >= 1.5 * interval
    return len(low) if is_continued and skips else 0


def is_unordered(counts: Array) -> bool:
    """Whether (n,) counts fall too often for restarts, unless all falls lead to the very beginning,
    and not singly.
    """
    falls = np.flatnonzero(np.diff(counts) < 0) + 1
    if falls.size <= MAX_RESTARTS_PER_ROW * counts.size:
        return False
    lengths = np.diff(np.concatenate(([0], falls, [counts.size])))
    return bool(np.any(counts[falls] != counts[0]) or np.any(lengths[:-1] < 2))


def _has_gone_back(
    steps: list[float], kinds: list[int], newest_step_by_kind: dict[int, float], fall: int
) -> bool:
    """Whether the rows from a fall on, until they exceed the level before it, redo steps.

    `newest_step_by_kind`: kind of row -> its newest step since the log went back the last time.
    """
    reached = steps[fall - 1]
    repeated_steps: set[float] = set()
    # Rows after a fall of the step that are looked at
    for row_index in range(fall, min(fall + 1_000, len(steps))):
        step = steps[row_index]
        if step > reached:
            return False
        if step < newest_step_by_kind.get(kinds[row_index], step):
            return True
        repeated_steps.add(step)
        if len(repeated_steps) == MIN_STEPS_AGAIN:
            return True
    return False
