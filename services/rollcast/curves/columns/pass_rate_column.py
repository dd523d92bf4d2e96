"""The column of the pass rate, unless the user names one.

Held-out readings come before those of training, the whole before its parts, accuracies before
scores and rewards, the mean of all attempts before the best of them. What remains ambiguous is
asked: several data sets, an accuracy of something next to a reward of everything, parts of a reward
without their total. Counts, weights and spreads are never taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

import numpy as np

from rollcast.curves.columns.choices import some
from rollcast.curves.columns.named_column import NamedColumn, NamedColumns
from rollcast.curves.columns.names import Attempts, Measure, MeasureKind, Stage
from rollcast.curves.columns.words import HELD_OUT_WORDS, OTHER_WORDS, TRAINING_STATISTICS
from rollcast.curves.sheet import Mask
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS
from rollcast.scaling.law.curve import Array

MIN_SERIES_READINGS = 2
"""Readings after the start that make a column a series."""


@dataclass(frozen=True)
class PassRateChoice:
    """Columns of success that the names and values of a sheet give.

    Attributes:
        columns: the ones that could be meant, one if it is clear; empty if none measures success.
        notes: sentences on what the user should know about the choice; none if it is obvious.
    """

    columns: list[str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Candidate:
    """A column that may hold the pass rate, and its known values."""

    measure: Measure
    finite_values: Array

    @property
    def name(self) -> str:
        return self.measure.name

    @property
    def is_accuracy(self) -> bool:
        return self.measure.kind is MeasureKind.ACCURACY

    @property
    def is_in_range(self) -> bool:
        return bool(np.all((self.finite_values >= 0) & (self.finite_values <= 1)))


def choose_pass_rate(columns: NamedColumns, counters: Sequence[NamedColumn]) -> PassRateChoice:
    """The columns that could be the pass rate, and what to say about the choice.

    `counters`: those of steps.
    """
    candidates = _candidates(columns)
    if not candidates:
        return PassRateChoice(_only_other(columns))
    is_start = _is_start(columns, counters)
    num_readings = {
        item.name: int(np.sum(np.isfinite(columns[item.name].values) & ~is_start))
        for item in candidates
    }
    # A column that has too few readings for any forecast hides no other.
    max_readings = max(num_readings.values())
    thresholds = (MIN_LAW_POINTS, MIN_SERIES_READINGS)
    min_readings = max(
        (threshold for threshold in thresholds if threshold <= max_readings), default=0
    )
    series = [candidate for candidate in candidates if num_readings[candidate.name] >= min_readings]
    stage = min(candidate.measure.stage for candidate in series)
    choice = _choose_in_stage(
        [candidate for candidate in series if candidate.measure.stage == stage]
    )
    if len(choice.columns) > 1:
        return choice
    [chosen] = choice.columns
    if hidden := [candidate.name for candidate in candidates if candidate.measure.stage < stage]:
        few = f"fewer than {min_readings} readings after the start in {some(hidden)}"
        return PassRateChoice([chosen], (f"{few}, so {chosen} is taken instead",))
    # The log may hold evaluations under names that no list here knows, so a sentence names them.
    if stage is not Stage.HELD_OUT and (unknown := unknown_evaluations(columns, chosen)):
        note = f"{chosen} is taken; rows of evaluations hold {some(unknown)}"
        return PassRateChoice([chosen], (*choice.notes, note))
    return choice


def unknown_evaluations(columns: NamedColumns, chosen_column: str) -> list[str]:
    """Columns that may be evaluations by numbers in [0, 1], although no word of their names
    measures success.

    Their names say that they are held out, or they are in rows without the column that is taken, of
    another stage.
    """
    is_known = np.isfinite(columns[chosen_column].values)
    # An accuracy of tokens may be held out.
    other_words = (OTHER_WORDS | TRAINING_STATISTICS) - {"token"}
    evaluation_columns = []
    for name, column in columns.items():
        is_named = column.words & other_words or column.measure or column.is_compute
        if name == chosen_column or is_named:
            continue
        finite_values = column.finite_values
        is_varying = finite_values.size >= MIN_SERIES_READINGS and bool(
            np.any(finite_values != finite_values[0])
        )
        is_in_other_rows = not np.any(np.isfinite(column.values) & is_known)
        is_apart = bool(column.words & HELD_OUT_WORDS) or is_in_other_rows
        if is_varying and is_apart and finite_values.min() >= 0 and finite_values.max() <= 1:
            evaluation_columns.append(name)
    return evaluation_columns


def _candidates(columns: NamedColumns) -> list[_Candidate]:
    """The columns that measure success; of those with the same values only the best name."""
    candidates = [
        _Candidate(measure, finite_values)
        for column in columns.values()
        if (measure := column.measure) is not None
        and (finite_values := column.finite_values).size
        and not _is_something_else(measure, finite_values)
    ]
    # Some frameworks log one reading under two names, which would look ambiguous.
    best: dict[bytes, str] = {}
    for candidate in sorted(candidates, key=_preference):
        values = columns[candidate.name].values
        # Adding 0.0 makes 0.0 of -0.0, and one nan of all kinds of nan.
        comparable_values = np.where(np.isnan(values), np.nan, values + 0.0)
        best.setdefault(sha256(comparable_values.tobytes()).digest(), candidate.name)
    kept_names = set(best.values())
    return [candidate for candidate in candidates if candidate.name in kept_names]


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


def _is_start(columns: NamedColumns, counters: Sequence[NamedColumn]) -> Mask:
    """(n,) rows of step 0, or of epoch 0 if no column counts steps."""
    epochs = [column for name, column in columns.items() if name.casefold() == "epoch"]
    # Columns of steps that are looked at for the start
    is_zero = [column.values == 0 for column in [*counters, *epochs][:20]]
    return np.asarray(np.any(is_zero, axis=0))


def _choose_in_stage(candidates: Sequence[_Candidate]) -> PassRateChoice:
    """The choice among columns of training, or among held-out ones."""
    named = [
        candidate for candidate in candidates if candidate.measure.kind is not MeasureKind.UNNAMED
    ] or candidates
    wholes = [candidate for candidate in named if not candidate.measure.is_part]
    parts = [candidate for candidate in named if candidate.measure.is_part]
    if not wholes:
        return _choose_among_parts(parts)
    chosen = _choose_among_wholes(wholes)
    if len(chosen) > 1:
        return PassRateChoice([candidate.name for candidate in chosen])
    [total_column] = chosen
    if not parts or total_column.is_accuracy:
        return _choice_with_note(total_column, wholes)
    right = [
        partial_column
        for partial_column in parts
        if partial_column.measure.is_correctness and partial_column.is_in_range
    ]
    # A total with a bonus for length or format is no pass rate, but its part for right answers is
    # one.
    if not total_column.is_in_range and len(right) == 1:
        sentence = (
            f"{right[0].name} is taken, the part of {total_column.name} for right answers; the "
            "total leaves [0, 1]"
        )
        return PassRateChoice([right[0].name], (sentence,))
    part_names = some([summand.name for summand in parts])
    sentence = f"{total_column.name} is the total reward; its parts are {part_names}"
    return PassRateChoice([total_column.name], (sentence,))


def _choose_among_parts(parts: Sequence[_Candidate]) -> PassRateChoice:
    """The choice among parts of a reward whose total was not logged."""
    right = [partial_column for partial_column in parts if partial_column.measure.is_correctness]
    if len(right) == 1 and len(parts) > 1:
        other_names = some([summand.name for summand in parts if summand is not right[0]])
        sentence = (
            f"{right[0].name} is taken, the part of the reward for right answers; other parts are "
            f"{other_names}"
        )
        return PassRateChoice([right[0].name], (sentence,))
    alone = f"{parts[0].name} is one part of a reward, and no total is there"
    return PassRateChoice([summand.name for summand in parts], (alone,) if len(parts) == 1 else ())


def _choose_among_wholes(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The best column of each subject that could be meant; one if it is clear."""
    by_subject: dict[frozenset[str], list[_Candidate]] = {}
    for candidate in candidates:
        by_subject.setdefault(candidate.measure.subject, []).append(candidate)
    best = {subject: _best(alike) for subject, alike in by_subject.items()}
    if len(best) == 1:
        return next(iter(best.values()))
    overall = best.pop(frozenset(), [])
    if overall and overall[0].is_accuracy:
        return overall
    subject_columns = list(chain.from_iterable(best.values()))
    is_held_out = candidates[0].measure.stage is Stage.HELD_OUT
    accurate = [candidate for candidate in subject_columns if candidate.is_accuracy]
    if overall and not accurate:
        return overall
    # An accuracy on one held-out data set is a pass rate, whatever the mean reward next to it is
    # made of.
    if overall and is_held_out and len(accurate) == 1 and accurate[0].measure.is_of_data_set:
        return accurate
    return [*overall, *(accurate if overall else subject_columns)]


def _best(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """The candidates of the best kind and number of attempts."""

    def rank(candidate: _Candidate) -> tuple[bool, int, int]:
        attempts = candidate.measure.attempts
        # The best of several attempts rises with their number, so a mean of any kind comes before
        # it.
        return (attempts > Attempts.UNNAMED, candidate.measure.kind, attempts)

    best_rank = min(map(rank, candidates))
    return [candidate for candidate in candidates if rank(candidate) == best_rank]


def _choice_with_note(chosen: _Candidate, wholes: Sequence[_Candidate]) -> PassRateChoice:
    """The choice with a sentence on columns of other data sets that were not taken."""
    other_names = [
        candidate.name
        for candidate in wholes
        if candidate.measure.subject != chosen.measure.subject
    ]
    if not other_names:
        return PassRateChoice([chosen.name])
    note = f"{chosen.name} is taken; other readings are {some(other_names)}"
    return PassRateChoice([chosen.name], (note,))


def _only_other(columns: NamedColumns) -> list[str]:
    """If no name is that of a measure, the one column that is not compute: `Value` of `Wall
    time,Step,Value`.
    """
    numeric = [column for column in columns.values() if column.finite_values.size]
    rest = [column for column in numeric if not column.is_compute]
    is_clear = len(rest) == 1 < len(numeric) and not rest[0].words & OTHER_WORDS
    return [rest[0].name] if is_clear else []
