"""Counts of right answers with their totals, `wins` of `n_games`: a column of their ratio, with its
binomial error.

Failures next to them, `losses`, make a total too, and a cell may hold both numbers: `13/64`.
"""

import re
from dataclasses import dataclass

import numpy as np

from rollcast.curves.columns import is_step_counter, words_in
from rollcast.curves.measures import (
    ACCURACY_WORDS,
    HELD_OUT_WORDS,
    RATE_WORDS,
    TRAINING_WORDS,
    MeasureKind,
    find_measure,
    is_count_name,
    measure_or_count,
    name_of_ratio,
)
from rollcast.curves.sheet import Column, Sheet
from rollcast.scaling.law.curve import Array

ERROR_PREFIX = "standard error of "
"""Begins the name of the column with the errors of a ratio."""
MAX_COUNTS = 50
"""Columns of counts that are looked at."""
STAGE_WORDS = HELD_OUT_WORDS | TRAINING_WORDS
TOTAL_WORDS = {
    "total", "n", "num", "number", "count", "games", "game", "episodes", "episode", "samples",
    "problems", "questions",
    "tasks", "trials", "attempts", "examples", "prompts", "rollouts", "evaluated", "played", "size",
    "rounds",
    "matches", "answers", "completions", "cases", "tests",
}  # fmt: skip
FAILURE_WORDS = {
    "fail", "fails", "failed", "failure", "failures", "losses", "lost", "incorrect", "wrong",
    "unsolved",
}  # fmt: skip
DRAW_WORDS = {"draw", "draws", "drawn", "tie", "ties", "tied"}

_PASSED_OF_TOTAL = re.compile(r"\s*(\d{1,9})\s?(?:/|of|out of)\s?(\d{1,9})\s*")


@dataclass(frozen=True)
class Total:
    """Attributes:
    name: of the column of tries, or a sum of columns, `wins + losses`.
    tries: (n,), nan if unknown.
    """

    name: str
    tries: Array


def with_ratios(sheet: Sheet) -> Sheet:
    """The sheet with a ratio for each count whose total it holds, unless the same success is there
    as a rate.
    """
    sheet = _with_shares(sheet)
    counts = [name for name in sheet.columns if _is_count(sheet, name)][:MAX_COUNTS]
    if not counts:
        return sheet
    rated = [
        words_in(name) & STAGE_WORDS
        for name in sheet.columns
        if (measure := find_measure(name))
        and measure.kind is MeasureKind.ACCURACY
        and not measure.may_count
    ]
    for count in counts:
        total = find_total(sheet, count)
        if total is None or words_in(count) & STAGE_WORDS in rated:
            continue
        right = sheet.numbers(count).values
        tries = total.tries
        rows = np.flatnonzero(np.isfinite(right) & np.isfinite(tries) & (tries > 0))
        name = name_of_ratio(count, total.name)
        errors = binomial_errors(right[rows], tries[rows])
        sheet = sheet.with_column(name, Column(rows, (right[rows] / tries[rows]).tolist()))
        sheet = sheet.with_column(f"{ERROR_PREFIX}{name}", Column(rows, errors.tolist()))
    return sheet


def _with_shares(sheet: Sheet) -> Sheet:
    """The sheet with a ratio for each measure of success whose cells are all `13/64`."""
    for name, column in sheet.columns.items():
        if measure_or_count(name) is None or is_step_counter(name) or not column.fields:
            continue
        cells = []
        for field in column.fields:
            # A field may be a long text of a model, but two counts fit into 40 characters.
            cell = _PASSED_OF_TOTAL.fullmatch(field[:40]) if isinstance(field, str) else None
            if cell is None or not int(cell[1]) <= int(cell[2]) > 0:
                break
            cells.append((int(cell[1]), int(cell[2])))
        # Every cell must match: a column of answers may hold `3/4` by chance.
        if len(cells) < len(column.fields):
            continue
        right, tries = np.array(cells, dtype=float).T
        share_name = name_of_ratio(name, "total") if find_measure(name) is None else name
        errors = binomial_errors(right, tries)
        sheet = sheet.with_column(share_name, Column(column.rows, (right / tries).tolist()))
        sheet = sheet.with_column(
            f"{ERROR_PREFIX}{share_name}", Column(column.rows, errors.tolist())
        )
    return sheet


def _is_count(sheet: Sheet, name: str) -> bool:
    """Whether a column counts right answers, by its name and by its values."""
    values = _whole_values(sheet, name) if is_count_name(name) else np.empty(0)
    # Zeros and ones alone are single outcomes or a rate.
    return bool(values.size) and float(values.max()) > 1


def _is_total(sheet: Sheet, name: str) -> bool:
    words = words_in(name)
    if not words & TOTAL_WORDS or words & (ACCURACY_WORDS | RATE_WORDS) or is_step_counter(name):
        return False
    values = _whole_values(sheet, name)
    return bool(values.size) and float(values.min()) > 0 and not _rises(values)


def _rises(values: Array) -> bool:
    """Whether (n,) tries are all those since the start of the run."""
    # Of two totals the second may be larger by chance.
    return values.size > 2 and bool(np.all(np.diff(values) > 0))


def _whole_values(sheet: Sheet, name: str) -> Array:
    """The known values of a column, none of them negative; empty if one is not a whole number."""
    values = sheet.numbers(name).values
    finite_values = values[np.isfinite(values)]
    is_whole = bool(np.all((finite_values >= 0) & (finite_values == np.floor(finite_values))))
    return np.asarray(finite_values if is_whole else finite_values[:0])


def find_total(sheet: Sheet, count: str) -> Total | None:
    """The tries of a count of right answers: a column of them, or the sum with its failures; None
    without either.
    """
    name = _column_of_tries(sheet, count)
    return (
        _sum_with_failures(sheet, count)
        if name is None
        else Total(name, sheet.numbers(name).values)
    )


def _sum_with_failures(sheet: Sheet, count: str) -> Total | None:
    """The sum of `wins`, `losses` and `draws`; None without failures, or if all count since the
    start.
    """
    rest = words_in(count) - ACCURACY_WORDS
    failures, draws = (
        [
            name
            for name in sheet.columns
            if words_in(name) & words and words_in(name) - words == rest
        ]
        for words in (FAILURE_WORDS, DRAW_WORDS)
    )
    names = [count, *failures, *draws]
    if len(failures) != 1 or not all(_whole_values(sheet, name).size for name in names):
        return None
    tries = np.sum([sheet.numbers(name).values for name in names], axis=0)
    return None if _rises(tries[np.isfinite(tries)]) else Total(" + ".join(names), tries)


def _column_of_tries(sheet: Sheet, count: str) -> str | None:
    """The column of a count's tries: of its own stage, never less than it, the nearest by name;
    None without one.
    """
    totals = [name for name in sheet.columns if _is_total(sheet, name)][:MAX_COUNTS]
    right = sheet.numbers(count).values
    is_known = np.isfinite(right)
    possible = []
    for name in totals:
        tries = sheet.numbers(name).values
        both = is_known & np.isfinite(tries)
        # `eval_correct` may have a total that names no stage, `num_games`, but never that of
        # training.
        is_of_a_stage = words_in(name) & STAGE_WORDS in (words_in(count) & STAGE_WORDS, set())
        # Share of a count's rows in which its total must be known
        if (
            is_of_a_stage
            and both.sum() >= 0.95 * is_known.sum()
            and np.all(right[both] <= tries[both])
        ):
            possible.append(name)
    best = sorted(possible, key=lambda name: -_likeness(count, name))
    nearest = [name for name in best if _likeness(count, name) == _likeness(count, best[0])]
    known = [sheet.numbers(name).values for name in nearest]
    is_clear = bool(known) and all(
        np.array_equal(values, known[0], equal_nan=True) for values in known
    )
    return nearest[0] if is_clear else None


def _likeness(count: str, total: str) -> int:
    """Common letters at the beginning of two names, and the word total itself."""
    common = next(
        (
            letter_index
            for letter_index, (a, b) in enumerate(zip(count, total, strict=False))
            if a != b
        ),
        min(len(count), len(total)),
    )
    # Doubled, so that the word total decides only between names that begin alike.
    return 2 * common + ("total" in words_in(total))


def binomial_errors(right: Array, tries: Array) -> Array:
    """(n,) standard errors of the shares right / tries.

    If none or all are right, of half a try more on either side.
    """
    share = right / tries
    is_extreme = (share == 0) | (share == 1)
    # Otherwise the error would be 0, but 64 of 64 right answers do not prove a pass rate of 1.
    share = np.where(is_extreme, (right + 0.5) / (tries + 1), share)
    return np.asarray(np.sqrt(share * (1 - share) / tries))
