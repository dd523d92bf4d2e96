"""What the name of a column says about it: which measure of success, of training or held out, of
which data set.

A name is a path of words, `val-core/openai/gsm8k/acc/mean@16`. Words that measure success name the
kind; words that measure something else (loss, length, weights, spread) exclude the column; the
remaining words are its subject.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from rollcast.curves.columns import EVALUATION_NAMES, words_in

HELD_OUT_WORDS = {
    "eval", "evals", "evaluation", "evaluations", "val", "vals", "valid", "validation",
    "validations", "test",
    "heldout", "held", "holdout", "dev", "benchmark",
}  # fmt: skip
TRAINING_WORDS = {"train", "training", "trainer"}
ACCURACY_WORDS = {
    "acc", "accuracy", "accuracies", "pass", "passed", "passrate", "correct", "correctness",
    "solved", "solve",
    "success", "successes", "successful", "successrate", "em", "match", "win", "winrate", "wins",
}  # fmt: skip
SCORE_WORDS = {"score", "scores"}
REWARD_WORDS = {"reward", "rewards", "rew", "rews"}
RETURN_WORDS = {"return", "returns"}
OTHER_WORDS = {
    "std", "stdev", "sd", "stderr", "error", "errors", "var", "variance", "min", "max", "median",
    "range", "loss", "kl",
    "length", "lengths", "len", "entropy", "grad", "norm", "lr", "count", "counts", "num", "n",
    "number", "clip",
    "clipped", "format", "turns", "runtime", "second", "seconds", "time", "timing", "tokens",
    "samples", "filter",
    "filtering", "aux", "advantage", "advantages", "baseline", "zero", "weight", "weights", "coef",
    "coeff",
    "coefficient", "alpha", "beta", "gamma", "factor", "multiplier", "penalty", "margin", "margins",
    "steps",
    "response", "truncated", "ci", "bonus", "token", "threshold", "gap", "step", "diff", "delta",
    "fail", "failed",
    "failure", "failures", "incorrect", "wrong", "unsolved", "invalid", "mismatch", "chosen",
    "rejected", "trivially",
    "trivial", "target", "initial", "previous", "prev", "schedule", "scale", "cap", "config",
    "hparams", "args",
    "params", "forward", "backward", "hist", "histogram", "quantile", "percentile", "cost", "fps",
    "prob", "probs",
    "logprob", "logprobs", "ref", "reference", "oracle", "router", "discriminator", "tool", "tools",
    "call", "calls",
    "json", "preference", "rm", "positive", "negative", "temperature", "memory", "timeout", "id",
    "version", "seed",
}  # fmt: skip
"""Words of a column that does not measure success, or only its spread, its weight or a count."""
OTHERS_JUDGED = ({"reward", "model"}, {"value"})
"""Next to a word of accuracy: how well a reward model or a critic judges, not how well the policy
answers."""
NEUTRAL_WORDS = {
    "mean", "avg", "average", "overall", "total", "sum", "all", "macro", "micro", "core", "fn",
    "func", "function",
    "functions", "rate", "ratio", "value", "values", "raw", "critic", "rollout", "rollouts", "env",
    "envs",
    "environment", "runners", "sampler", "results", "episode", "episodic", "episodes", "ep",
    "batch", "group", "groups",
    "policy", "actor", "agent", "objective", "metric", "metrics", "stats", "log", "logs",
    "verifiable", "verifier",
    "verified", "answer", "answers", "outcome", "task", "tasks", "current", "percent", "pct",
    "percentage", "in", "of",
    "at", "per", "greedy", "sampled", "sample", "prompt", "prompts", "default", "main", "fraction",
    "frac", "share",
    "exact", "epoch", "this", "iter", "grpo", "ppo", "rl", "model", "th", "k", "set", "best", "maj",
    "majority",
    "worst", "data", "dataset", "eval", "moving", "running", "ema", "smoothed", "gen", "generation",
    "final", "full",
}  # fmt: skip
"""Words that name no subject: how it was averaged, who measured it."""
RATE_WORDS = {
    "rate", "ratio", "acc", "accuracy", "accuracies", "mean", "avg", "average", "fraction", "frac",
    "share", "percent",
    "pct", "percentage", "passrate", "successrate", "winrate",
}  # fmt: skip
"""A measure with one of these is no count, however large its values."""
SHARE_WORDS = {"ratio", "fraction", "frac", "share"}
GROUP_WORDS = {"all", "none", "partial", "some", "any", "every", "mixed", "too", "zero"}
"""Next to a word of accuracy: the share of groups whose attempts are all alike, as `solve_none`
is."""
DATA_SET_WORDS = {
    "aime", "amc", "math", "gsm", "minerva", "olympiad", "olympiadbench", "humaneval", "mbpp",
    "livecodebench", "lcb",
    "gpqa", "mmlu", "countdown", "arc", "hellaswag", "bbh", "ifeval", "code", "codeforces",
    "webshop", "alfworld",
}  # fmt: skip
"""Names of benchmarks; any word with a digit in it counts as one too."""
_ONE_OF_MANY = re.compile(
    r"(best|maj|worst|majority)(@|_?of_?)\d+|pass(@|_at_|_)?([2-9]|[1-9]\d+)(?!\d)", re.IGNORECASE
)
"""The best or the majority of several attempts, which rises with their number."""
_MEAN_OF_MANY = re.compile(r"(mean|avg|average)@\d+|pass(@|_at_|_)?1(?!\d)", re.IGNORECASE)
_EXTREME_WORDS = {"best", "worst", "highest", "top"}
"""Without a number of attempts this is the best evaluation so far, not the newest one."""
_SMOOTHED_WORDS = {"ema", "smoothed", "moving", "running"}
MAX_CACHED_NAMES = 4_096
"""Names whose measures are remembered: each line of a console is asked for those of its names."""
MAX_CACHED_CHARS = 200
"""Longer names are rare, and would fill the cache."""
_RATIO_MARK = " of "
_COUNT_WORDS = {"num", "n", "number", "count", "counts", "total", "of", "the"}
"""Words of a column that counts right answers: `num_correct`, `total_wins`."""
_TOKEN = re.compile(r"[A-Za-z0-9]+")
_PATH_PARTS = re.compile(r"[/.|]")


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


@dataclass(frozen=True)
class Measure:
    """A column's name, taken apart.

    Attributes:
        attempts: 0 for the mean of all attempts, 1 if the name does not say, 2 for the best of
            several, 3 if smoothed.
        subject: words that say of what it is the accuracy or reward; empty for the whole.
        is_part: whether it is one summand of a reward.
        is_of_data_set: whether the subject is a data set.
        may_count: whether values above 1 would be counts of right answers.
    """

    name: str
    stage: Stage
    kind: MeasureKind
    attempts: int
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
    words = words_in(name) - _COUNT_WORDS
    return set() if words & OTHER_WORDS else words


def is_count_name(name: str) -> bool:
    """Whether a column may count right answers, by its name."""
    others = RATE_WORDS | REWARD_WORDS | SCORE_WORDS
    return bool(count_words(name) & ACCURACY_WORDS) and not words_in(name) & others


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


@lru_cache(maxsize=MAX_CACHED_NAMES)
def _find_cached_measure(name: str) -> Measure | None:
    return _find_measure(name)


def _find_measure(name: str) -> Measure | None:
    count, mark, _ = name.partition(_RATIO_MARK)
    if mark and count_words(count) & ACCURACY_WORDS:
        words = count_words(count)
        subject = (
            frozenset(
                token for path_part in _PATH_PARTS.split(count) for token in _subject_in(path_part)
            )
            - _COUNT_WORDS
        )
        stage = _stage(words, is_usual=False)
        return Measure(name, stage, MeasureKind.ACCURACY, 1, subject, False, bool(subject), False)
    words = words_in(name)
    is_usual = name.casefold() in EVALUATION_NAMES
    attempts = _attempts(name, words)
    if not is_usual and _is_other(name, words, attempts):
        return None
    kind = _kind(name, words, attempts)
    if kind is None:
        return None
    parts = _PATH_PARTS.split(name)
    subject = frozenset(token for part in parts for token in _subject_in(part))
    data_sets = {token for token in subject if _is_data_set(token)}
    is_in_own_part = bool(subject) and all(
        not words_in(part) & (ACCURACY_WORDS | SCORE_WORDS | REWARD_WORDS)
        for part in parts
        if _subject_in(part)
    )
    return Measure(
        name=name,
        stage=_stage(words, is_usual=is_usual),
        kind=kind,
        attempts=attempts,
        subject=subject,
        is_part=attempts in (1, 3) and _is_part(parts),
        is_of_data_set=bool(subject)
        and (bool(data_sets) or is_in_own_part or kind is MeasureKind.UNNAMED),
        may_count=bool(words & ACCURACY_WORDS)
        and not words & (RATE_WORDS | REWARD_WORDS)
        and attempts == 1,
    )


def _attempts(name: str, words: set[str]) -> int:
    if _MEAN_OF_MANY.search(name):
        return 0
    if _ONE_OF_MANY.search(name):
        return 2
    return 3 if words & _SMOOTHED_WORDS else 1


def _is_other(name: str, words: set[str], attempts: int) -> bool:
    """Whether a word says that it is not a measure of success."""
    if words & OTHER_WORDS:
        return True
    if words & ACCURACY_WORDS and any(judged_words <= words for judged_words in OTHERS_JUDGED):
        return True
    if words & _EXTREME_WORDS and attempts == 1:
        return True
    last_part_words = words_in(_PATH_PARTS.split(name)[-1])
    if (
        last_part_words & ACCURACY_WORDS
        and last_part_words & GROUP_WORDS
        and not last_part_words & (RATE_WORDS - SHARE_WORDS)
    ):
        return True
    return (
        "total" in last_part_words
        and bool(last_part_words & ACCURACY_WORDS)
        and not last_part_words & RATE_WORDS
    )


def _kind(name: str, words: set[str], attempts: int) -> MeasureKind | None:
    named_by_attempts = attempts in (0, 2) and not words & (SCORE_WORDS | REWARD_WORDS)
    if words & ACCURACY_WORDS and not words & REWARD_WORDS:
        return MeasureKind.ACCURACY
    if named_by_attempts or (words & ACCURACY_WORDS and attempts == 2):
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


def _subject_in(path_part: str) -> list[str]:
    """The words of one part of the path that no list here knows."""
    listed_words = (
        HELD_OUT_WORDS
        | TRAINING_WORDS
        | ACCURACY_WORDS
        | SCORE_WORDS
        | REWARD_WORDS
        | RETURN_WORDS
        | NEUTRAL_WORDS
    )
    subject_words = []
    for token in _TOKEN.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", path_part)):
        word = token.casefold().rstrip("0123456789")
        if word and word not in listed_words:
            subject_words.append(token.casefold())
    return subject_words


def _is_data_set(token: str) -> bool:
    return token in DATA_SET_WORDS or any(character.isdigit() for character in token)


def _is_part(parts: list[str]) -> bool:
    """Whether something is named at or after the word reward: `rewards/format/mean`,
    `accuracy_reward`.
    """
    first = next(
        (
            part_index
            for part_index, path_part in enumerate(parts)
            if words_in(path_part) & REWARD_WORDS
        ),
        None,
    )
    if first is None:
        return False
    for part in parts[first:]:
        if words_in(part) & ACCURACY_WORDS:
            return True
        if any(not _is_data_set(token) for token in _subject_in(part)):
            return True
    return False
