"""Logs of single outcomes, one line for each game, episode or answer: their mean at each step, with
its standard error.

    {"step": 10, "word": "apple", "solved": false}
    {"step": 10, "word": "baker", "solved": true}      ->  step 10: 0.5, standard error 0.35

If each step has one outcome, a stretch of them is averaged: a game is won or lost, which is not a
pass rate.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rollcast.curves.amounts import Tell, format_count
from rollcast.curves.columns import EPOCHS, words_in
from rollcast.curves.curve_sheet import CurveSheet
from rollcast.curves.labels import LABELS, Label, clashing_labels
from rollcast.curves.ratios import binomial_errors
from rollcast.curves.restarts import MAX_STRETCHES, going_back
from rollcast.curves.sheet import RUN, Column, Mask
from rollcast.scaling.law.curve import Array

MIN_OUTCOMES_PER_STEP = 2
"""Rows of one step on average from which they are parts of one evaluation. Fewer are a reading that
is there twice."""
MIN_OUTCOMES_PER_STRETCH = 8
STANDARD_ERROR = "standard error of the mean"
ITEM_WORDS = {
    "word", "question", "prompt", "problem", "game", "episode", "opponent", "instance", "sample",
    "answer", "item",
    "puzzle", "level", "map", "id", "target", "secret", "goal", "task", "completion",
}  # fmt: skip
"""Words of a column that names a game or a question, and not a data set with a curve of its own."""
Numbers = NDArray[np.int64]


def average_outcomes(curve: CurveSheet, tell: Tell) -> CurveSheet:
    """The sheet with one evaluation for each step, or for each stretch of steps, if its rows are
    single outcomes.
    """
    sheet = curve.sheet
    # A row with an error or a number of prompts is already an evaluation of many answers.
    if curve.columns.standard_error is not None or sheet.column("num_prompts") is not None:
        return curve
    values = sheet.numbers(curve.columns.pass_rate).values
    at = sheet.numbers(curve.columns.compute).values
    rows = np.flatnonzero(np.isfinite(values) & np.isfinite(at))
    if rows.size < MIN_OUTCOMES_PER_STRETCH:
        return curve
    values = values[rows]
    is_binary = bool(np.all((values == 0) | (values == 1)))
    column = sheet.column(curve.columns.pass_rate)
    is_truth = column is not None and column.is_truth
    if not is_binary and MIN_OUTCOMES_PER_STEP * np.unique(at[rows]).size > rows.size:
        return curve
    if not is_binary and curve.columns.unit == EPOCHS and np.any(at[rows] % 1):
        return curve  # parts of an epoch are rounded places, each of several readings
    stretches = _stretches(curve, at, rows)
    if stretches.max() >= MAX_STRETCHES:
        return curve
    steps = sheet.numbers(curve.columns.step).values
    groups = _number_groups(np.nan_to_num(steps[rows]), at[rows], stretches)
    labels = clashing_labels(sheet.only(_mask(sheet.num_rows, rows)), curve.columns.compute)
    num_groups = int(groups.max()) + 1
    # Different steps of a log. At a single one something else is counted.
    if num_groups < 2:
        return curve
    if rows.size >= MIN_OUTCOMES_PER_STEP * num_groups:
        names_curves = any(
            _names_curves(curve, label, groups, rows, is_binary=is_binary) for label in labels
        )
        if names_curves or not (is_truth or labels or _differs_within(values, groups)):
            return curve
        means = (
            f"{rows.size} rows are {format_count(num_groups, 'evaluation')}, the means of those of "
            "one step"
        )
    elif not labels and (is_truth or (is_binary and _alternates(values))) and _is_long(stretches):
        groups, size = _consecutive(stretches, at[rows])
        means = f"{rows.size} single outcomes are averaged over {size} in a row"
    else:
        return curve
    tell(
        f"{curve.columns.pass_rate}: {means}; the standard errors are "
        f"{'binomial' if is_binary else 'of the means'}"
    )
    return _with_means(curve, rows, values, groups, is_binary=is_binary)


def _mask(num_rows: int, rows: Numbers) -> Mask:
    mask = np.zeros(num_rows, dtype=bool)
    mask[rows] = True
    return mask


def _stretches(curve: CurveSheet, at: Array, rows: Numbers) -> Numbers:
    """(m,) numbers, equal for evaluations of one run between two restarts."""
    sheet = curve.sheet
    names = sheet.texts(RUN)
    numbers: dict[str, int] = {}
    runs = np.array(
        [numbers.setdefault(names[row], len(numbers)) for row in rows.tolist()], dtype=np.int64
    )
    # Rows of several runs may alternate, so a lower step in the next row is no restart.
    if len(numbers) > 1:
        return runs
    begins = np.zeros(sheet.num_rows, dtype=np.int64)
    begins[going_back(sheet, at, _mask(sheet.num_rows, rows))] = 1
    return np.asarray(np.cumsum(begins)[rows])


def _number_groups(*keys: Array | Numbers) -> Numbers:
    """(m,) numbers, equal for evaluations of equal keys; ascending by the last of them."""
    order = np.lexsort(keys)
    is_new = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    groups = np.empty(order.size, dtype=np.int64)
    groups[order] = np.append(0, np.cumsum(is_new))
    return groups


def _names_curves(
    curve: CurveSheet, label: Label, groups: Numbers, rows: Numbers, *, is_binary: bool
) -> bool:
    """Whether a label distinguishes curves, and not the games of which one evaluation consists."""
    if label.name.casefold() in (*LABELS, RUN) or label.is_of_stages:
        return True
    if not is_binary:
        return not words_in(label.name) & ITEM_WORDS
    texts = np.array(curve.sheet.texts(label.name), dtype=object)[rows]
    for kind in label.kinds:
        kind_groups = groups[texts == kind]
        if kind_groups.size >= MIN_OUTCOMES_PER_STEP * np.unique(kind_groups).size:
            return True
    return False


def _differs_within(values: Array, groups: Numbers) -> bool:
    """Whether values (m,) of one group differ; else each process may have logged the same
    reading.
    """
    first = np.full(int(groups.max()) + 1, np.nan)
    first[groups[::-1]] = values[::-1]
    return bool(np.any(values != first[groups]))


def _alternates(values: Array) -> bool:
    # Share of the rows whose 0 or 1 differs from the one before, from which such numbers are
    # outcomes and not a curve
    return int(np.sum(np.diff(values) != 0)) >= 0.1 * values.size


def _is_long(stretches: Numbers) -> bool:
    """Whether two stretches of outcomes can be averaged in each part of the log."""
    return int(np.bincount(stretches).min()) >= 2 * MIN_OUTCOMES_PER_STRETCH


def _consecutive(stretches: Numbers, at: Array) -> tuple[Numbers, int]:
    """(m,) numbers of groups of consecutive outcomes, and how many outcomes are in one."""
    # Averages of a curve: more show no more of its shape
    size = max(MIN_OUTCOMES_PER_STRETCH, -(-at.size // 40))
    groups = np.zeros(at.size, dtype=np.int64)
    num_groups = 0
    for stretch in np.unique(stretches):
        members = np.flatnonzero(stretches == stretch)
        members = members[np.argsort(at[members], kind="stable")]
        for group_members in np.array_split(members, max(1, members.size // size)):
            groups[group_members] = num_groups
            num_groups += 1
    return groups, size


def _with_means(
    curve: CurveSheet, rows: Numbers, values: Array, groups: Numbers, *, is_binary: bool
) -> CurveSheet:
    """The mean of each group (m,) in its middle row, and no value in its other rows."""
    sizes = np.bincount(groups)
    means = np.bincount(groups, weights=values) / sizes
    if is_binary:
        errors = binomial_errors(means * sizes, sizes.astype(float))
    else:
        squares = np.bincount(groups, weights=(values - means[groups]) ** 2)
        # One value alone has no spread: its error of 0 counts as unknown later.
        errors = np.sqrt(squares / np.maximum(sizes - 1, 1) / sizes)
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(sizes)
    # Outcomes in a row are averaged over a range of steps, and the mean belongs to its middle.
    middles = rows[order[ends - sizes + (sizes - 1) // 2]]
    row_order = np.argsort(middles)
    sheet = curve.sheet.with_column(
        curve.columns.pass_rate, Column(middles[row_order], means[row_order].tolist())
    )
    sheet = sheet.with_column(
        STANDARD_ERROR, Column(middles[row_order], errors[row_order].tolist())
    )
    return replace(
        curve, sheet=sheet, columns=replace(curve.columns, standard_error=STANDARD_ERROR)
    )
