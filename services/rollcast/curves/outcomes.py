"""Logs of single outcomes, one line for each game, episode or answer: their mean at each step, with
its standard error.

    {"step": 10, "word": "apple", "solved": false}
    {"step": 10, "word": "baker", "solved": true}      ->  step 10: 0.5, standard error 0.35

If each step has one outcome, a stretch of them is averaged: a game is won or lost, which is not a
pass rate.
"""

from dataclasses import replace

import numpy as np

from rollcast.curves.amounts import Tell, format_count
from rollcast.curves.columns.curve_sheet import CurveSheet
from rollcast.curves.columns.labels import Label
from rollcast.curves.columns.ratios import binomial_errors
from rollcast.curves.columns.restarts import MAX_STRETCHES, Rows
from rollcast.curves.columns.units import EPOCHS
from rollcast.curves.sheet import Column
from rollcast.scaling.law.curve import Array

MIN_OUTCOMES_PER_STEP = 2
"""Rows of one step on average from which they are parts of one evaluation. Fewer are a reading that
is there twice."""
MIN_OUTCOMES_PER_STRETCH = 8
STANDARD_ERROR = "standard error of the mean"


def average_outcomes(curve: CurveSheet, tell: Tell) -> CurveSheet:
    """The sheet with one evaluation for each step, or for each stretch of steps, if its rows are
    single outcomes.
    """
    # A row with an error or a number of prompts is already an evaluation of many answers.
    if curve.columns.standard_error is not None or "num_prompts" in curve:
        return curve
    values = curve["pass_rate"].values
    compute = curve["compute"].values
    is_known = np.isfinite(values) & np.isfinite(compute)
    rows = np.flatnonzero(is_known)
    if rows.size < MIN_OUTCOMES_PER_STRETCH:
        return curve
    values = values[rows]
    is_binary = bool(np.all((values == 0) | (values == 1)))
    if not is_binary and MIN_OUTCOMES_PER_STEP * np.unique(compute[rows]).size > rows.size:
        return curve
    if not is_binary and curve.columns.unit == EPOCHS and np.any(compute[rows] % 1):
        return curve  # parts of an epoch are rounded places, each of several readings
    stretches = curve.stretches
    if stretches.max() >= MAX_STRETCHES:
        return curve
    steps = curve["step"].values
    groups = _number_groups(np.nan_to_num(steps[rows]), compute[rows], stretches)
    labels = curve.only(is_known).clashing_labels
    is_truth = curve.is_truth
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
        groups, size = _consecutive(stretches, compute[rows])
        means = f"{rows.size} single outcomes are averaged over {size} in a row"
    else:
        return curve
    tell(
        f"{curve.columns.pass_rate}: {means}; the standard errors are "
        f"{'binomial' if is_binary else 'of the means'}"
    )
    return _with_means(curve, rows, values, groups, is_binary=is_binary)


def _number_groups(*keys: Array | Rows) -> Rows:
    """(m,) numbers, equal for evaluations of equal keys; ascending by the last of them."""
    order = np.lexsort(keys)
    is_new = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    groups = np.empty(order.size, dtype=np.int64)
    groups[order] = np.append(0, np.cumsum(is_new))
    return groups


def _names_curves(
    curve: CurveSheet, label: Label, groups: Rows, rows: Rows, *, is_binary: bool
) -> bool:
    """Whether a label distinguishes curves, and not the games of which one evaluation consists."""
    if label.names_curves:
        return True
    if not is_binary:
        return not label.names_items
    texts = np.array(curve.sheet.texts(label.name), dtype=object)[rows]
    for kind in label.kinds:
        kind_groups = groups[texts == kind]
        if kind_groups.size >= MIN_OUTCOMES_PER_STEP * np.unique(kind_groups).size:
            return True
    return False


def _differs_within(values: Array, groups: Rows) -> bool:
    """Whether values (m,) of one group differ; else each process may have logged the same
    reading.
    """
    first_values = np.full(int(groups.max()) + 1, np.nan)
    first_values[groups[::-1]] = values[::-1]
    return bool(np.any(values != first_values[groups]))


def _alternates(values: Array) -> bool:
    # Share of the rows whose 0 or 1 differs from the one before, from which such numbers are
    # outcomes and not a curve
    return int(np.sum(np.diff(values) != 0)) >= 0.1 * values.size


def _is_long(stretches: Rows) -> bool:
    """Whether two stretches of outcomes can be averaged in each part of the log."""
    return int(np.bincount(stretches).min()) >= 2 * MIN_OUTCOMES_PER_STRETCH


def _consecutive(stretches: Rows, compute: Array) -> tuple[Rows, int]:
    """(m,) numbers of groups of consecutive outcomes, and how many outcomes are in one."""
    # Averages of a curve: more show no more of its shape
    size = max(MIN_OUTCOMES_PER_STRETCH, -(-compute.size // 40))
    groups = np.zeros(compute.size, dtype=np.int64)
    num_groups = 0
    for stretch in np.unique(stretches):
        members = np.flatnonzero(stretches == stretch)
        members = members[np.argsort(compute[members], kind="stable")]
        for group_members in np.array_split(members, max(1, members.size // size)):
            groups[group_members] = num_groups
            num_groups += 1
    return groups, size


def _with_means(
    curve: CurveSheet, rows: Rows, values: Array, groups: Rows, *, is_binary: bool
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
    averaged = curve | {
        curve.columns.pass_rate: Column(middles[row_order], means[row_order].tolist()),
        STANDARD_ERROR: Column(middles[row_order], errors[row_order].tolist()),
    }
    return replace(averaged, columns=replace(curve.columns, standard_error=STANDARD_ERROR))
