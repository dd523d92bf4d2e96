"""A whole file's columns as evaluations of one run: what `row_evaluations` makes of its rows, all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from rollcast.config.curve_columns import (
    ASKED_NAMES,
    DEVICES_NAMES,
    GRADED_NAMES,
    MISSING_NAMES,
    SAMPLES_NAMES,
    START_UP_NAMES,
    TRAINED_TOKENS_NAMES,
)
from rollcast.curves.curve_row import (
    LARGEST_STEP,
    MOST_KINDS,
    MOST_RESTARTS,
    is_number_or_empty,
    mixed,
    real_number,
    text_of,
)
from rollcast.curves.evaluation_columns import EvaluationColumns, Steps
from rollcast.curves.sheet import Mask, Numbers, Sheet
from rollcast.runfolder.completeness import is_complete
from rollcast.runfolder.survival import NEVER_ENDED, surviving
from rollcast.scaling.law.curve import Array


@dataclass(frozen=True)
class CurveColumns:
    """Names of columns that a sheet has, None for one that it has not; `scale`: times pass rates and their errors."""

    compute: str
    pass_rate: str
    standard_error: str | None
    truncation_ratio: str | None
    step: str | None
    scale: float


def evaluations_of(sheet: Sheet, columns: CurveColumns, run: str) -> tuple[EvaluationColumns, dict[int, int]]:
    """Every evaluation in the order of the file, compute nan where a row tells none; and from where each incarnation
    continued.

    Raises UserError: a column holds no number.
    """
    names = {
        "pass_rate": columns.pass_rate,
        "compute": columns.compute,
        "standard_error": columns.standard_error,
        "start_up": START_UP_NAMES[0],
        "trained_tokens": TRAINED_TOKENS_NAMES[0],
        "samples": SAMPLES_NAMES[0],
        "truncation_ratio": columns.truncation_ratio,
        "devices": DEVICES_NAMES[0],
    }
    found = {name: sheet.numbers(named) for name, named in names.items()}
    is_reading = found["pass_rate"].given
    _refuse_odd(sheet, [(named, found[name]) for name, named in names.items() if named is not None], is_reading)
    values = {name: numbers.values for name, numbers in found.items()}
    values["pass_rate"] = values["pass_rate"] * columns.scale
    values["standard_error"] = values["standard_error"] * columns.scale
    step, has_step = _steps(sheet.numbers(columns.step))
    is_finite = np.isfinite(values["compute"]) & np.isfinite(values["pass_rate"])
    number, starts = _incarnations(sheet, columns.compute, step, has_step & (~is_reading | is_finite), is_reading)
    # By numbers of rows nobody can tell what a step costs usually, so no start-up either.
    values["graded_share"] = _graded_shares(sheet)
    values["start_up"] = np.where(found["start_up"].given | has_step, values["start_up"], 0.0)
    by_row = np.where(values["compute"] > 0, np.arange(1, len(sheet) + 1), 0)
    made = EvaluationColumns(run=run, incarnation=number, step=np.where(has_step, step, by_row), **values)
    return made.at(is_reading), starts


def surviving_of(evaluations: EvaluationColumns, starts: dict[int, int]) -> EvaluationColumns:
    """Those that survive the restarts, by step; `runfolder.survival` is the rule."""
    if not starts and bool(np.all(np.diff(evaluations.step) > 0)) and np.unique(evaluations.incarnation).size < 2:
        return evaluations
    made = map(_Made, evaluations.incarnation.tolist(), evaluations.step.tolist(), range(len(evaluations)))
    return evaluations.at(np.array([item.place for item in surviving(made, starts)], dtype=np.intp))


def num_distinct(evaluations: EvaluationColumns) -> int:
    """Without second readings of a step by one incarnation."""
    if np.all(np.diff(evaluations.step) > 0):
        return len(evaluations)
    order = np.lexsort((evaluations.step, evaluations.incarnation))
    is_other = np.diff(evaluations.step[order]) | np.diff(evaluations.incarnation[order])
    return 1 + int(np.count_nonzero(is_other))


def complaint_of(sheet: Sheet, columns: CurveColumns, option: str) -> str | None:
    """What is mixed in the sheet's readings and how to choose, or None, as `MixedRows` tells it."""
    sheet = sheet.only(sheet.numbers(columns.pass_rate).given)
    kinds = {name: found for name in sheet.names if len(found := _kinds(sheet, name)) > 1}
    written = list(map(text_of, sheet.cells(columns.compute))) if kinds else []
    clashes = {name: _first_clash(map(text_of, sheet.cells(name)), written) for name in kinds}
    # Of columns that clash first in one row the first of the file, as row by row.
    clashing = sorted(((place, name) for name, place in clashes.items() if place is not None), key=itemgetter(0))
    runs = list(dict.fromkeys(map(text_of, sheet.field("run")))) if sheet.has("run") else [""]
    return mixed(len(sheet), runs, [(name, kinds[name]) for _, name in clashing], columns.compute, option)


def complete_of(evaluations: EvaluationColumns) -> EvaluationColumns:
    """Those with enough prompts graded; `runfolder.completeness` is the rule."""
    known = np.flatnonzero(~np.isnan(evaluations.graded_share))
    if known.size == 0:
        return evaluations
    kept = np.ones(len(evaluations), dtype=np.bool_)
    kept[known] = [is_complete(share) for share in evaluations.graded_share[known].tolist()]
    return evaluations.at(kept)


def _graded_shares(sheet: Sheet) -> Array:
    """(n,) of the prompts asked, nan where the file does not say; as `EvaluationRecord.graded_share` has it."""
    graded, asked, missing = (sheet.numbers(names[0]).values for names in (GRADED_NAMES, ASKED_NAMES, MISSING_NAMES))
    asked = np.where(np.isnan(asked), graded + missing, asked)
    is_known = (graded >= 0) & (graded <= asked) & (asked > 0)
    return np.asarray(np.where(is_known, graded, np.nan) / np.where(is_known, asked, 1.0))


class _Made(NamedTuple):
    incarnation: int
    step: int
    place: int


def _refuse_odd(sheet: Sheet, columns: list[tuple[str, Numbers]], is_reading: Mask) -> None:
    """Of the first reading that holds something else than numbers, the first such field."""
    odd = [(int(np.argmax(wrong)), name) for name, numbers in columns if np.any(wrong := numbers.odd & is_reading)]
    if odd:
        place, name = min(odd, key=lambda item: item[0])
        real_number(sheet.field(name)[place], name)


def _kinds(sheet: Sheet, name: str) -> list[str]:
    """The texts of a column of readings in order; none where a number, or nothing, is among them, or too many are."""
    kinds: dict[str, None] = {}
    for text in map(text_of, sheet.cells(name) if sheet.has_texts(name) else ()):
        if text not in kinds:
            kinds[text] = None
            if is_number_or_empty(text) or len(kinds) > MOST_KINDS:
                return []
    return list(kinds)


def _first_clash(texts: Iterable[str], written: list[str]) -> int | None:
    """The first place whose text is not the one that came first with its compute."""
    first: dict[str, str] = {}
    for place, (text, compute) in enumerate(zip(texts, written, strict=True)):
        if first.setdefault(compute, text) != text:
            return place
    return None


def _steps(numbers: Numbers) -> tuple[Steps, Mask]:
    """(n,) each: the whole numbers of a column, and where there are any; none from the first part of an epoch on."""
    whole, is_whole = _whole(numbers)
    is_part = np.isfinite(numbers.values) & (np.floor(numbers.values) != numbers.values)
    fractions = np.flatnonzero(is_part & ~numbers.per_cent)
    if fractions.size:
        is_whole[fractions[0] :] = False
    return whole, is_whole


def _whole(numbers: Numbers) -> tuple[Steps, Mask]:
    """(n,) each: the whole numbers of a column, and where there are any."""
    with np.errstate(invalid="ignore"):
        is_whole = (np.floor(numbers.values) == numbers.values) & (np.abs(numbers.values) < LARGEST_STEP)
    is_whole &= ~numbers.per_cent
    return np.where(is_whole, numbers.values, 0.0).astype(np.int64), is_whole


def _incarnations(
    sheet: Sheet, compute: str, step: Steps, has_step: Mask, is_reading: Mask
) -> tuple[Steps, dict[int, int]]:
    """(n,) incarnation of each row, as a column or its steps tell it; and the last step that counts before each."""
    told, is_told = _whole(sheet.numbers("incarnation"))
    number, first_steps, in_order_of_time = _restarts(sheet, compute, step, has_step & ~is_told, is_reading, ~is_told)
    number = np.where(is_told, told, number)
    places = np.flatnonzero(is_told & has_step)
    if places.size == 0:
        if not in_order_of_time:
            return number, dict.fromkeys(first_steps, NEVER_ENDED)
        return number, {later: first - 1 for later, first in first_steps.items()}
    first: dict[int, int] = {}
    for later, at in zip(told[places].tolist(), step[places].tolist(), strict=True):
        first[later] = min(at, first.get(later, at))
    from_step, is_from = _whole(sheet.numbers("started_from"))
    tell = np.flatnonzero(is_told & has_step & is_from)
    return number, {later: at - 1 for later, at in first.items()} | dict(
        zip(told[tell].tolist(), from_step[tell].tolist(), strict=True)
    )


def _restarts(
    sheet: Sheet, compute: str, step: Steps, has_step: Mask, is_reading: Mask, counts: Mask
) -> tuple[Steps, dict[int, int], bool]:
    """As `Restarts` tells them row by row: incarnation of each row, its first steps, whether time has an order."""
    rows = np.flatnonzero(has_step)
    steps, readings = step[rows], is_reading[rows]
    begins = np.append(False, np.diff(steps) < 0)[: rows.size]
    before = np.append(-1, np.maximum.accumulate(np.where(readings, np.arange(rows.size), -1))[:-1])[: rows.size]
    again = np.flatnonzero(readings & (before >= 0) & (steps[before] == steps))
    if again.size:
        written = list(map(text_of, sheet.field(compute)))
        begins[again] |= [written[rows[place]] != written[rows[before[place]]] for place in again]
    number = np.ones(len(sheet), dtype=np.int64)
    number[rows[begins]] += 1
    number = 1 + np.cumsum(number - 1)
    first_steps = dict(zip(number[rows[begins]].tolist(), steps[begins].tolist(), strict=True))
    return number, first_steps, len(first_steps) <= MOST_RESTARTS * int(counts.sum())
