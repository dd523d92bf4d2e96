"""Counts of right answers with their totals, `wins` of `n_games`: a column of their ratio, with its
binomial error.

Failures next to them, `losses`, make a total too, and a cell may hold both numbers: `13/64`.
"""

import re
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.columns.named_column import NamedColumn, NamedColumns
from rollcast.curves.columns.names import (
    MeasureKind,
    is_step_counter,
    measure_or_count,
    name_of_ratio,
)
from rollcast.curves.columns.words import (
    ACCURACY_WORDS,
    DRAW_WORDS,
    ERROR_PREFIX,
    FAILURE_WORDS,
    RATE_WORDS,
    STAGE_WORDS,
    TOTAL_WORDS,
)
from rollcast.curves.sheet import Column, Sheet
from rollcast.scaling.law.curve import Array

MAX_COUNTS = 50
"""Columns of counts that are looked at."""
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
    columns = {name: NamedColumn(name, sheet) for name in sheet.columns}
    counts = [column for column in columns.values() if _is_count(column)][:MAX_COUNTS]
    if not counts:
        return sheet
    rated = [
        column.words & STAGE_WORDS
        for column in columns.values()
        if (measure := column.measure)
        and measure.kind is MeasureKind.ACCURACY
        and not measure.may_count
    ]
    ratios: dict[str, Column] = {}
    for count in counts:
        total = find_total(columns, count)
        if total is None or count.words & STAGE_WORDS in rated:
            continue
        right = count.values
        tries = total.tries
        rows = np.flatnonzero(np.isfinite(right) & np.isfinite(tries) & (tries > 0))
        name = name_of_ratio(count.name, total.name)
        ratios |= _ratio_columns(name, rows, right[rows], tries[rows])
    return replace(sheet, columns={**sheet.columns, **ratios})


def _ratio_columns(
    name: str, rows: NDArray[np.int64], right: Array, tries: Array
) -> dict[str, Column]:
    """The shares of right answers (m,) in those rows, and their standard errors."""
    errors = binomial_errors(right, tries)
    return {
        name: Column(rows, (right / tries).tolist()),
        f"{ERROR_PREFIX}{name}": Column(rows, errors.tolist()),
    }


def _with_shares(sheet: Sheet) -> Sheet:
    """The sheet with a ratio for each measure of success whose cells are all `13/64`."""
    shares: dict[str, Column] = {}
    for name, column in sheet.columns.items():
        measure = measure_or_count(name)
        if measure is None or is_step_counter(name) or not column.fields:
            continue
        cells = []
        for field in column.fields:
            # A field may be a long text of a model, but two counts fit into 40 characters.
            cell = _PASSED_OF_TOTAL.fullmatch(field[:40]) if isinstance(field, str) else None
            if cell is None or not int(cell[1]) <= int(cell[2]) > 0:
                break
            cells.append((int(cell[1]), int(cell[2])))
        # Every cell must match: a column of answers may hold `3/4` by chance.
        if len(cells) == len(column.fields):
            right, tries = np.array(cells, dtype=float).T
            share_name = name if measure.name == name else name_of_ratio(name, "total")
            shares |= _ratio_columns(share_name, column.rows, right, tries)
    return replace(sheet, columns={**sheet.columns, **shares})


def _is_count(column: NamedColumn) -> bool:
    """Whether a column counts right answers, by its name and by its values."""
    values = _whole_values(column) if column.is_count else np.empty(0)
    # Zeros and ones alone are single outcomes or a rate.
    return bool(values.size) and float(values.max()) > 1


def _is_total(column: NamedColumn) -> bool:
    is_named = column.words & TOTAL_WORDS and not column.words & (ACCURACY_WORDS | RATE_WORDS)
    values = np.empty(0)
    if is_named and not column.is_step_counter:
        values = _whole_values(column)
    return bool(values.size) and float(values.min()) > 0 and not _rises(values)


def _rises(values: Array) -> bool:
    """Whether (n,) tries are all those since the start of the run."""
    # Of two totals the second may be larger by chance.
    return values.size > 2 and bool(np.all(np.diff(values) > 0))


def _whole_values(column: NamedColumn) -> Array:
    """The known values of a column, none of them negative; empty if one is not a whole number."""
    finite_values = column.finite_values
    is_whole = bool(np.all((finite_values >= 0) & (finite_values == np.floor(finite_values))))
    return np.asarray(finite_values if is_whole else finite_values[:0])


def find_total(columns: NamedColumns, count: NamedColumn) -> Total | None:
    """The tries of a count of right answers: a column of them, or the sum with its failures; None
    without either.
    """
    tries = _column_of_tries(columns, count)
    return _sum_with_failures(columns, count) if tries is None else Total(tries.name, tries.values)


def _sum_with_failures(columns: NamedColumns, count: NamedColumn) -> Total | None:
    """The sum of `wins`, `losses` and `draws`; None without failures, or if all count since the
    start.
    """
    rest = count.words - ACCURACY_WORDS
    failures, draws = (
        [
            column
            for column in columns.values()
            if column.words & words and column.words - words == rest
        ]
        for words in (FAILURE_WORDS, DRAW_WORDS)
    )
    summands = [count, *failures, *draws]
    if len(failures) != 1 or not all(_whole_values(column).size for column in summands):
        return None
    tries = np.sum([column.values for column in summands], axis=0)
    name = " + ".join(column.name for column in summands)
    return None if _rises(tries[np.isfinite(tries)]) else Total(name, tries)


def _column_of_tries(columns: NamedColumns, count: NamedColumn) -> NamedColumn | None:
    """The column of a count's tries: of its own stage, never less than it, the nearest by name;
    None without one.
    """
    right = count.values
    is_known = np.isfinite(right)
    possible = []
    for column in [column for column in columns.values() if _is_total(column)][:MAX_COUNTS]:
        tries = column.values
        is_in_both = is_known & np.isfinite(tries)
        # `eval_correct` may have a total that names no stage, `num_games`, but never that of
        # training.
        is_of_a_stage = column.words & STAGE_WORDS in (count.words & STAGE_WORDS, set())
        # Share of a count's rows in which its total must be known
        is_covering = is_in_both.sum() >= 0.95 * is_known.sum()
        if is_of_a_stage and is_covering and np.all(right[is_in_both] <= tries[is_in_both]):
            possible.append(column)
    likeness = {column.name: _likeness(count.name, column) for column in possible}
    nearest = [column for column in possible if likeness[column.name] == max(likeness.values())]
    is_clear = bool(nearest) and all(
        np.array_equal(column.values, nearest[0].values, equal_nan=True) for column in nearest
    )
    return nearest[0] if is_clear else None


def _likeness(count: str, total: NamedColumn) -> int:
    """Common letters at the beginning of two names, and the word total itself."""
    letters = zip(count, total.name, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], letters))
    # Doubled, so that the word total decides only between names that begin alike.
    return 2 * common + ("total" in total.words)


def binomial_errors(right: Array, tries: Array) -> Array:
    """(n,) standard errors of the shares right / tries.

    If none or all are right, of half a try more on either side.
    """
    share = right / tries
    is_extreme = (share == 0) | (share == 1)
    # Otherwise the error would be 0, but 64 of 64 right answers do not prove a pass rate of 1.
    share = np.where(is_extreme, (right + 0.5) / (tries + 1), share)
    return np.asarray(np.sqrt(share * (1 - share) / tries))
