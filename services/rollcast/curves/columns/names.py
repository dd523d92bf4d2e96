"""What the name of a column says about it: whether it counts steps, or which measure of success it
is, of training or held out, of which data set.

A name is a path of words, `val-core/openai/gsm8k/acc/mean@16`. Words that measure success name the
kind; words that measure something else (loss, length, weights, spread) exclude the column; the
remaining words are its subject.
"""

import re
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import lru_cache
from itertools import dropwhile

from rollcast.curves.columns.words import (
    ACCURACY_WORDS,
    COUNT_WORDS,
    COUNTED_WORDS,
    COUNTER_WORDS,
    DATA_SET_WORDS,
    EVALUATION_NAMES,
    EXTREME_WORDS,
    GROUP_WORDS,
    HELD_OUT_WORDS,
    OTHER_WORDS,
    OTHERS_JUDGED,
    RATE_WORDS,
    RETURN_WORDS,
    REWARD_WORDS,
    SCORE_WORDS,
    SHARE_WORDS,
    SMOOTHED_WORDS,
    STAGE_WORDS,
    SUBJECTLESS_WORDS,
    TRAINING_WORDS,
)

_WORDS = re.compile(r"[A-Za-z]+")
_CAMEL_CASE = re.compile(r"([a-z])([A-Z])")

_ONE_OF_MANY = re.compile(
    r"(best|maj|worst|majority)(@|_?of_?)\d+|pass(@|_at_|_)?([2-9]|[1-9]\d+)(?!\d)", re.IGNORECASE
)
"""The best or the majority of several attempts, which rises with their number."""
_MEAN_OF_MANY = re.compile(r"(mean|avg|average)@\d+|pass(@|_at_|_)?1(?!\d)", re.IGNORECASE)
MAX_CACHED_NAMES = 4_096
"""Names whose measures are remembered: each line of a console is asked for those of its names."""
MAX_CACHED_CHARS = 200
"""Longer names are rare, and would fill the cache."""
_RATIO_MARK = " of "
_TOKEN = re.compile(r"[A-Za-z0-9]+")
_PATH_PARTS = re.compile(r"[/.|]")


def words_in(name: str) -> set[str]:
    """The words of a column's name, in lower case: `train/global_step` -> train, global, step."""
    # Names in camel case have no separator: `evalReward` is eval and reward.
    return {word.casefold() for word in _WORDS.findall(_CAMEL_CASE.sub(r"\1 \2", name))}


def is_step_counter(name: str) -> bool:
    """Whether the name can be that of a counter of steps: `eval_step`, `progress/batch`,
    `time/total_timesteps`.
    """
    words = words_in(name)
    counted = words & COUNTED_WORDS
    # stable-baselines3 has its counters under time/; `step_time` is a duration.
    if name.casefold().startswith("time/") and any(word.endswith("s") for word in counted):
        words = words - {"time"}
    return bool(counted) and words <= COUNTED_WORDS | COUNTER_WORDS


def counts_steps_or_epochs(name: str) -> bool:
    """Whether the name is that of a counter of steps, or of the epoch."""
    return is_step_counter(name) or name.casefold() == "epoch"


def names_stage(name: str) -> bool:
    """Whether a word of the name says that it is of training, or held out."""
    return bool(words_in(name) & STAGE_WORDS)


class Stage(IntEnum):
    """On which prompts it was measured, the better first."""

    HELD_OUT = 0
    UNMARKED = 1
    """A usual name of an evaluation (accuracy, score) that does not say so."""
    TRAINING = 2


class MeasureKind(IntEnum):
    """Kinds of measures, the better first."""

    ACCURACY = 0
    SCORE = 1
    REWARD = 2
    RETURN = 3
    UNNAMED = 4
    """A data set under `eval/` without a word for the measure."""


class Attempts(IntEnum):
    """The attempts at a prompt that a measure counts; a lower one is preferred."""

    MEAN = auto()
    """The mean of all attempts."""
    UNNAMED = auto()
    """The name does not say."""
    BEST = auto()
    """The best of several, or their majority."""
    SMOOTHED = auto()
    """A running mean over steps."""


@dataclass(frozen=True)
class Measure:
    """A column's name, taken apart.

    Attributes:
        subject: words that say of what it is the accuracy or reward; empty for the whole.
        is_part: whether it is one summand of a reward.
        is_of_data_set: whether the subject is a data set.
        may_count: whether values above 1 would be counts of right answers.
    """

    name: str
    stage: Stage
    kind: MeasureKind
    attempts: Attempts
    subject: frozenset[str]
    is_part: bool
    is_of_data_set: bool
    may_count: bool

    @property
    def is_correctness(self) -> bool:
        """Whether it says that the answer is right and nothing else, as
        `rewards/accuracy_reward/mean` does.
        """
        return not self.subject and bool(words_in(self.name) & ACCURACY_WORDS)


def name_of_ratio(count: str, total: str) -> str:
    """The name of a column that `find_measure` takes for the rate of a count of right answers."""
    return f"{count}{_RATIO_MARK}{total}"


def count_words(name: str) -> set[str]:
    """The words of a count's name that name the counted thing; empty if others are not those of a
    count.
    """
    words = words_in(name) - COUNT_WORDS
    return set() if words & OTHER_WORDS else words


def is_count_name(name: str) -> bool:
    """Whether a column may count right answers, by its name."""
    excluded_words = RATE_WORDS | REWARD_WORDS | SCORE_WORDS
    return bool(count_words(name) & ACCURACY_WORDS) and not words_in(name) & excluded_words


def measures_success(name: str) -> bool:
    """Whether the name is that of a measure of success, or of a count of right answers."""
    return measure_or_count(name) is not None


def measure_or_count(name: str) -> Measure | None:
    """The measure of a name; that of its share for a count of right answers, as `num_correct`."""
    measure = find_measure(name)
    return _measure_of_count(name) if measure is None and len(name) <= MAX_CACHED_CHARS else measure


@lru_cache(maxsize=MAX_CACHED_NAMES)
def _measure_of_count(name: str) -> Measure | None:
    return _find_measure(name_of_ratio(name, "")) if is_count_name(name) else None


def find_measure(name: str) -> Measure | None:
    """None: by its name the column does not measure success."""
    return _find_cached_measure(name) if len(name) <= MAX_CACHED_CHARS else _find_measure(name)


def _find_measure(name: str) -> Measure | None:
    count, mark, _ = name.partition(_RATIO_MARK)
    if mark and count_words(count) & ACCURACY_WORDS:
        subject = _subject(_PATH_PARTS.split(count)) - COUNT_WORDS
        stage = _stage(count_words(count), is_usual=False)
        return Measure(
            name=name,
            stage=stage,
            kind=MeasureKind.ACCURACY,
            attempts=Attempts.UNNAMED,
            subject=subject,
            is_part=False,
            is_of_data_set=bool(subject),
            may_count=False,
        )
    words = words_in(name)
    is_usual = name.casefold() in EVALUATION_NAMES
    attempts = _attempts(name, words)
    if not is_usual and _is_other(name, words, attempts):
        return None
    kind = _kind(name, words, attempts)
    if kind is None:
        return None
    parts = _PATH_PARTS.split(name)
    subject = _subject(parts)
    subject_parts = filter(_subject_in, parts)
    measure_words = ACCURACY_WORDS | SCORE_WORDS | REWARD_WORDS
    is_in_own_part = not any(words_in(path_part) & measure_words for path_part in subject_parts)
    return Measure(
        name=name,
        stage=_stage(words, is_usual=is_usual),
        kind=kind,
        attempts=attempts,
        subject=subject,
        is_part=attempts in (Attempts.UNNAMED, Attempts.SMOOTHED) and _is_part(parts),
        is_of_data_set=bool(subject)
        and (is_in_own_part or kind is MeasureKind.UNNAMED or any(map(_is_data_set, subject))),
        may_count=bool(words & ACCURACY_WORDS)
        and not words & (RATE_WORDS | REWARD_WORDS)
        and attempts is Attempts.UNNAMED,
    )


_find_cached_measure = lru_cache(maxsize=MAX_CACHED_NAMES)(_find_measure)


def _attempts(name: str, words: set[str]) -> Attempts:
    if _MEAN_OF_MANY.search(name):
        return Attempts.MEAN
    if _ONE_OF_MANY.search(name):
        return Attempts.BEST
    return Attempts.SMOOTHED if words & SMOOTHED_WORDS else Attempts.UNNAMED


def _is_other(name: str, words: set[str], attempts: Attempts) -> bool:
    """Whether a word says that it is not a measure of success."""
    if words & OTHER_WORDS:
        return True
    if words & ACCURACY_WORDS and any(judged_words <= words for judged_words in OTHERS_JUDGED):
        return True
    if words & EXTREME_WORDS and attempts is Attempts.UNNAMED:
        return True
    last_part_words = words_in(_PATH_PARTS.split(name)[-1])
    is_of_groups = last_part_words & GROUP_WORDS and not last_part_words & (
        RATE_WORDS - SHARE_WORDS
    )
    is_total = "total" in last_part_words and not last_part_words & RATE_WORDS
    return bool(last_part_words & ACCURACY_WORDS and (is_of_groups or is_total))


def _kind(name: str, words: set[str], attempts: Attempts) -> MeasureKind | None:
    counts_attempts = attempts in (Attempts.MEAN, Attempts.BEST)
    named_by_attempts = counts_attempts and not words & (SCORE_WORDS | REWARD_WORDS)
    if words & ACCURACY_WORDS and not words & REWARD_WORDS:
        return MeasureKind.ACCURACY
    if named_by_attempts or (words & ACCURACY_WORDS and attempts is Attempts.BEST):
        return MeasureKind.ACCURACY
    if words & SCORE_WORDS:
        return MeasureKind.SCORE
    if words & REWARD_WORDS:
        return MeasureKind.REWARD
    if words & RETURN_WORDS:
        return MeasureKind.RETURN
    return MeasureKind.UNNAMED if _is_bare_data_set(_PATH_PARTS.split(name)) else None


def _is_bare_data_set(parts: list[str]) -> bool:
    """Whether it is `eval/aime`: a stage, and a data set alone."""
    # `eval/aime` has two parts, the stage and the data set, as slime writes it
    if len(parts) != 2:
        return False
    stage = words_in(parts[0])
    return bool(stage) and stage <= HELD_OUT_WORDS and any(map(_is_data_set, _subject_in(parts[1])))


def _stage(words: set[str], *, is_usual: bool) -> Stage:
    if words & HELD_OUT_WORDS and not words & TRAINING_WORDS:
        return Stage.HELD_OUT
    return Stage.UNMARKED if is_usual else Stage.TRAINING


def _subject(parts: list[str]) -> frozenset[str]:
    return frozenset(token for path_part in parts for token in _subject_in(path_part))


def _subject_in(path_part: str) -> list[str]:
    """The words of one part of the path that no list knows."""
    return [
        token.casefold()
        for token in _TOKEN.findall(_CAMEL_CASE.sub(r"\1 \2", path_part))
        if (word := token.casefold().rstrip("0123456789")) and word not in SUBJECTLESS_WORDS
    ]


def _is_data_set(token: str) -> bool:
    return token in DATA_SET_WORDS or any(character.isdigit() for character in token)


def _is_part(parts: list[str]) -> bool:
    """Whether something is named at or after the word reward: `rewards/format/mean`,
    `accuracy_reward`.
    """
    from_reward = dropwhile(lambda path_part: not words_in(path_part) & REWARD_WORDS, parts)
    return any(
        words_in(path_part) & ACCURACY_WORDS or not all(map(_is_data_set, _subject_in(path_part)))
        for path_part in from_reward
    )
