"""The column of the pass rate, unless the user names one.

Held-out readings come before those of training, the whole before its parts, accuracies before
scores and rewards, the mean of all attempts before the best of them. What remains ambiguous is
asked: several data sets, an accuracy of something next to a reward of everything, parts of a reward
without their total. Counts, weights and spreads are never taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from rollcast.curves.columns import (
    STEP_NAMES,
    TIME_NAMES,
    find_unit,
    is_step_counter,
    some,
    words_in,
)
from rollcast.curves.compute_column import step_columns
from rollcast.curves.measures import (
    HELD_OUT_WORDS,
    OTHER_WORDS,
    Measure,
    MeasureKind,
    Stage,
    find_measure,
)
from rollcast.curves.sheet import Mask, Sheet
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS
from rollcast.scaling.law.curve import Array

MIN_SERIES_READINGS = 2
"""Readings after the start that make a column a series."""
TRAINING_STATISTICS = {
    "lr", "learning", "clipfrac", "clip", "ratio", "util", "utilization", "usage", "mfu", "gpu",
    "progress",
    "cpu", "eta", "epsilon", "eps", "dropout", "warmup", "sampling", "approx", "frac",
}  # fmt: skip
"""Words of columns next to the reward of training that are no evaluations."""


@dataclass(frozen=True)
class PassRateChoice:
    """What the names and values of a sheet's columns say.

    Attributes:
        columns: the ones that could be meant, one if it is clear; empty if none measures success.
        sentence: what the user should know about the choice; empty if it is obvious.
    """

    columns: list[str]
    sentence: str = ""


@dataclass(frozen=True)
class _Candidate:
    """A column that may hold the pass rate, and its known values."""

    measure: Measure
    values: Array

    @property
    def name(self) -> str:
        return self.measure.name

    @property
    def is_in_range(self) -> bool:
        return bool(np.all((self.values >= 0) & (self.values <= 1)))


def choose_pass_rate(sheet: Sheet) -> PassRateChoice:
    """The columns that could be the pass rate, and what to say about the choice."""
    candidates = _candidates(sheet)
    if not candidates:
        return PassRateChoice(_only_other(sheet))
    is_start = _is_start(sheet)
    num_readings = {
        candidate.name: int(np.sum(np.isfinite(sheet.numbers(candidate.name).values) & ~is_start))
        for candidate in candidates
    }
    # A column that has too few readings for any forecast hides no other.
    min_readings = next(
        (
            threshold
            for threshold in (MIN_LAW_POINTS, MIN_SERIES_READINGS)
            if max(num_readings.values()) >= threshold
        ),
        0,
    )
    series = [candidate for candidate in candidates if num_readings[candidate.name] >= min_readings]
    stage = min(candidate.measure.stage for candidate in series)
    choice = _choose_in_stage(
        [candidate for candidate in series if candidate.measure.stage == stage]
    )
    hidden = [candidate.name for candidate in candidates if candidate.measure.stage < stage]
    if hidden and len(choice.columns) == 1:
        [chosen_column] = choice.columns
        reason = f"fewer than {min_readings} readings after the start in {some(hidden)}"
        return PassRateChoice(choice.columns, f"{reason}, so {chosen_column} is taken instead")
    if stage is not Stage.HELD_OUT and len(choice.columns) == 1:
        # The log may hold evaluations under names that no list here knows, so a sentence names
        # them.
        unknown = unknown_evaluations(sheet, choice.columns[0])
        sentence = (
            f"{choice.columns[0]} is taken; rows of evaluations hold {some(unknown)}"
            if unknown
            else ""
        )
        return PassRateChoice(choice.columns, "; ".join(filter(None, (choice.sentence, sentence))))
    return choice


def plausible_columns(sheet: Sheet) -> list[str]:
    """Columns of numbers that are neither compute nor by their names something else; or else all
    columns.
    """
    plausible = []
    for name in sheet.columns:
        is_number = bool(np.any(np.isfinite(sheet.numbers(name).values)))
        if is_number and not _is_compute(name) and not words_in(name) & OTHER_WORDS:
            plausible.append(name)
    return plausible or list(sheet.columns)


def unknown_evaluations(sheet: Sheet, chosen_column: str) -> list[str]:
    """Columns that may be evaluations by numbers in [0, 1], although no word of their names
    measures success.

    Their names say that they are held out, or they are in rows without the column that is taken, of
    another stage.
    """
    is_taken = np.isfinite(sheet.numbers(chosen_column).values)
    evaluation_columns = []
    others = (OTHER_WORDS | TRAINING_STATISTICS) - {
        "token"
    }  # an accuracy of tokens may be held out
    for name in sheet.columns:
        words = words_in(name)
        if name == chosen_column or words & others or find_measure(name) or _is_compute(name):
            continue
        values = sheet.numbers(name).values
        is_known = np.isfinite(values)
        finite_values = values[is_known]
        is_varying = finite_values.size >= MIN_SERIES_READINGS and bool(
            np.any(finite_values != finite_values[0])
        )
        is_apart = bool(words & HELD_OUT_WORDS) or not np.any(is_known & is_taken)
        if is_varying and is_apart and finite_values.min() >= 0 and finite_values.max() <= 1:
            evaluation_columns.append(name)
    return evaluation_columns


def _candidates(sheet: Sheet) -> list[_Candidate]:
    """The columns that measure success; of those with the same values only the best name."""
    candidates: list[_Candidate] = []
    for name in sheet.columns:
        measure = find_measure(name)
        if measure is None:
            continue
        values = sheet.numbers(name).values
        finite_values = values[np.isfinite(values)]
        if finite_values.size and not _is_something_else(measure, finite_values):
            candidates.append(_Candidate(measure, finite_values))
    # Some frameworks log one reading under two names, which would look ambiguous.
    best: dict[bytes, _Candidate] = {}
    for candidate in sorted(candidates, key=_preference):
        values = sheet.numbers(candidate.name).values
        # Adding 0.0 makes 0.0 of -0.0, and one nan of all kinds of nan.
        comparable_values = np.where(np.isnan(values), np.nan, values + 0.0)
        best.setdefault(sha256(comparable_values.tobytes()).digest(), candidate)
    column_order = {name: number for number, name in enumerate(sheet.columns)}
    return sorted(best.values(), key=lambda candidate: column_order[candidate.name])


def _preference(candidate: _Candidate) -> tuple[int, bool, int, int, int]:
    """Lower is better."""
    measure = candidate.measure
    return (measure.stage, measure.is_part, len(measure.subject), measure.kind, measure.attempts)


def _is_something_else(measure: Measure, values: Array) -> bool:
    """Whether the values say that it counts right answers, or is not a measure at all."""
    if measure.kind is MeasureKind.UNNAMED:
        # A bare data set under `eval/` may also hold a loss, a length or a setting.
        return bool(np.any((values < 0) | (values > 1))) or bool(np.all(values == values[0]))
    is_whole = bool(np.all(values == np.floor(values)))
    return measure.may_count and is_whole and bool(values.max() > 1)


def _is_start(sheet: Sheet) -> Mask:
    """(n,) rows of step 0, or of epoch 0 if no column counts steps."""
    counters = [
        *step_columns(list(sheet.columns)),
        *(name for name in sheet.columns if name.casefold() == "epoch"),
    ]
    is_start = np.zeros(sheet.num_rows, dtype=bool)
    # Columns of steps that are looked at for the start
    for name in counters[:20]:
        is_start |= sheet.numbers(name).values == 0
    return is_start


def _choose_in_stage(candidates: Sequence[_Candidate]) -> PassRateChoice:
    """The choice among columns of training, or among held-out ones."""
    named = [
        candidate for candidate in candidates if candidate.measure.kind is not MeasureKind.UNNAMED
    ] or candidates
    whole_candidates = [candidate for candidate in named if not candidate.measure.is_part]
    parts = [candidate for candidate in named if candidate.measure.is_part]
    if not whole_candidates:
        return _choose_among_parts(parts)
    chosen = _choose_among_wholes(whole_candidates)
    if len(chosen) > 1:
        return PassRateChoice([candidate.name for candidate in chosen])
    [chosen_candidate] = chosen
    if not parts or chosen_candidate.measure.kind is MeasureKind.ACCURACY:
        return PassRateChoice([chosen_candidate.name], _beside(chosen_candidate, whole_candidates))
    right = [
        part_candidate
        for part_candidate in parts
        if part_candidate.measure.is_correctness and part_candidate.is_in_range
    ]
    # A total with a bonus for length or format is no pass rate, but its part for right answers is
    # one.
    if not chosen_candidate.is_in_range and len(right) == 1:
        sentence = (
            f"{right[0].name} is taken, the part of {chosen_candidate.name} for right answers; the "
            "total leaves [0, 1]"
        )
        return PassRateChoice([right[0].name], sentence)
    names = some([part.name for part in parts])
    return PassRateChoice(
        [chosen_candidate.name],
        f"{chosen_candidate.name} is the total reward; its parts are {names}",
    )


def _choose_among_parts(parts: Sequence[_Candidate]) -> PassRateChoice:
    """The choice among parts of a reward whose total was not logged."""
    right = [part_candidate for part_candidate in parts if part_candidate.measure.is_correctness]
    if len(right) == 1 and len(parts) > 1:
        other_parts = some([part.name for part in parts if part is not right[0]])
        sentence = (
            f"{right[0].name} is taken, the part of the reward for right answers; other parts are "
            f"{other_parts}"
        )
        return PassRateChoice([right[0].name], sentence)
    sentence = (
        f"{parts[0].name} is one part of a reward, and no total is there" if len(parts) == 1 else ""
    )
    return PassRateChoice([part.name for part in parts], sentence)


def _choose_among_wholes(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The best column of each subject that could be meant; one if it is clear."""
    by_subject: dict[frozenset[str], list[_Candidate]] = {}
    for candidate in candidates:
        by_subject.setdefault(candidate.measure.subject, []).append(candidate)
    best = {
        subject: _best(subject_candidates) for subject, subject_candidates in by_subject.items()
    }
    overall = best.get(frozenset(), [])
    if len(best) == 1:
        return next(iter(best.values()))
    if overall and overall[0].measure.kind is MeasureKind.ACCURACY:
        return overall
    subject_columns = [
        candidate for subject, found in best.items() if subject for candidate in found
    ]
    is_held_out = candidates[0].measure.stage is Stage.HELD_OUT
    accurate = [
        candidate for candidate in subject_columns if candidate.measure.kind is MeasureKind.ACCURACY
    ]
    if overall and not accurate:
        return overall
    # An accuracy on one held-out data set is a pass rate, whatever the mean reward next to it is
    # made of.
    if overall and is_held_out and len(accurate) == 1 and accurate[0].measure.is_of_data_set:
        return accurate
    return [*overall, *(accurate if overall else subject_columns)]


def _best(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """Those of the best kind and number of attempts."""

    def rank(candidate: _Candidate) -> tuple[bool, int, int]:
        attempts = candidate.measure.attempts
        # The best of several attempts rises with their number, so a mean of any kind comes before
        # it.
        return (attempts > 1, candidate.measure.kind, attempts)

    best_rank = min(map(rank, candidates))
    return [candidate for candidate in candidates if rank(candidate) == best_rank]


def _beside(chosen_candidate: _Candidate, whole_candidates: Sequence[_Candidate]) -> str:
    """A sentence on columns of other data sets that were not taken; or an empty text."""
    other_names = [
        candidate.name
        for candidate in whole_candidates
        if candidate.measure.subject != chosen_candidate.measure.subject
    ]
    return (
        f"{chosen_candidate.name} is taken; other readings are {some(other_names)}"
        if other_names
        else ""
    )


def _only_other(sheet: Sheet) -> list[str]:
    """If no name is that of a measure, the one column that is not compute: `Value` of `Wall
    time,Step,Value`.
    """
    numeric = [name for name in sheet.columns if np.any(np.isfinite(sheet.numbers(name).values))]
    other_columns = [name for name in numeric if not _is_compute(name)]
    return (
        other_columns
        if len(other_columns) == 1 < len(numeric) and not words_in(other_columns[0]) & OTHER_WORDS
        else []
    )


def _is_compute(name: str) -> bool:
    is_usual = name.casefold() in (*STEP_NAMES, *TIME_NAMES) or is_step_counter(name)
    return is_usual or not find_unit(name).startswith("units of ")
