"""Names of columns: the requested ones, the usual ones, the units in them, and the columns that hold the curve.

A column is ranked by the words of its name. Held-out measures come before those of training, accuracies before scores
and these before rewards, the mean of all attempts before the best of them. If several columns of the first rank differ,
the user is asked; nothing is guessed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.sheet import Sheet, shown
from rollcast.scaling.law.curve import DEVICE_HOURS

COMPUTE_NAMES = ("compute_device_hours", "compute", "device_hours", "gpu_hours", "gpu_hours_excl_eval")
EVALUATION_NAMES = ("pass_rate", "accuracy", "score", "eval_acc", "eval_accuracy", "eval_reward")
PASS_RATE_NAMES = (*EVALUATION_NAMES, "reward", "mean_reward")
"""The last two may be of training."""
STANDARD_ERROR_NAMES = ("standard_error", "stderr")
TRUNCATION_NAMES = ("truncation_ratio", "truncation_rate", "truncated")
STEP_NAMES = (
    "global_step", "train/global_step", "trainer/global_step", "training/global_step", "training_step", "step",
    "train_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Names of the optimizer step, in the order in which they are looked for; W&B's own counter of calls last."""
TIME_NAMES = ("_runtime", "runtime", "elapsed", "elapsed_seconds", "_timestamp", "timestamp", "wall_time", "time")

GPU_HOURS = "GPU-hours"
HOURS = "hours"
SECONDS = "seconds"
STEPS = "steps"
TOKENS = "tokens"
SAMPLES = "samples"
EPOCHS = "epochs"
TIME_UNITS = (DEVICE_HOURS, GPU_HOURS, HOURS, SECONDS)
"""A start-up takes some of these, and nothing is learned in it."""
_UNITS_BY_WORD = (
    (TOKENS, {"token", "tokens", "tok"}),
    (SAMPLES, {"sample", "samples", "episode", "episodes", "rollouts", "prompts", "examples", "problems"}),
    (STEPS, {"step", "steps", "iteration", "iterations", "iter", "iters", "update", "updates"}),
    (EPOCHS, {"epoch", "epochs"}),
    (HOURS, {"hour", "hours", "hrs"}),
    (SECONDS, {"second", "seconds", "sec", "runtime", "elapsed", "time", "timestamp", "date", "clock"}),
)  # fmt: skip
_RATE_WORDS = {"per", "throughput", "rate"}
_OTHER_TIME_WORDS = {"minute", "minutes", "min", "mins", "ms", "millis", "milliseconds", "ns", "us", "day", "days"}
"""Not converted into seconds: the unit is the name of the column."""
_DURATION_WORDS = {"time", "timing", "duration", "seconds", "sec"}
"""Next to the word step these mean the duration of one step."""
_WORDS = re.compile(r"[A-Za-z]+")

HELD_OUT_WORDS = {"eval", "evaluation", "val", "valid", "validation", "test", "heldout", "held", "dev"}
ACCURACY_WORDS = {"acc", "accuracy", "pass", "passrate", "correct", "correctness", "solved", "solve", "success", "em"}
SCORE_WORDS = {"score", "scores"}
REWARD_WORDS = {"reward", "rewards"}
OTHER_WORDS = {
    "std", "stderr", "error", "var", "min", "max", "median", "loss", "kl", "length", "lengths", "len", "entropy",
    "grad", "norm", "lr", "count", "num", "clip", "clipped", "format", "turns", "runtime", "second", "seconds",
    "time", "timing", "tokens", "samples", "filter", "filtering", "aux", "advantage", "advantages", "baseline",
    "zero", "weight", "penalty", "margin", "margins", "steps", "response", "truncated", "ci", "bonus",
    "token", "threshold", "gap", "step", "diff", "delta", "fail", "failed",
}  # fmt: skip
"""Words of a column that does not measure success, or only its spread."""
_ONE_OF_MANY = re.compile(r"(best|maj|worst|majority)@?\d+|pass(@|_at_|_)?([2-9]|[1-9]\d+)(?!\d)", re.IGNORECASE)
"""The best or the majority of several attempts, which rises with their number."""
_MEAN_OF_MANY = re.compile(r"(mean|avg|average)@\d+|pass(@|_at_|_)?1(?!\d)", re.IGNORECASE)
MIN_COVERED_SHARE = 0.95
"""Share of the evaluations that a column of compute must have a value for. A resumed log may lack some of them."""
MAX_NAMES_IN_A_SENTENCE = 10
MAX_DEVICES = 1e7
"""More than any run has had; a larger number is a slip of the keyboard."""
Rank = tuple[int, int, int]


@dataclass(frozen=True)
class Columns:
    """What a user specifies about the columns of a file; None = recognised by their names.

    A Prometheus server takes expressions instead, each of one series.
    """

    compute: str | None = None
    pass_rate: str | None = None
    standard_error: str | None = None
    truncation_ratio: str | None = None
    where: tuple[str, ...] = ()
    """Conditions COLUMN=VALUE that a row must meet."""
    scale: float = 1.0
    """Times the pass rates and their standard errors."""
    seconds: str | None = None
    """Instead of `compute`: the column of the elapsed time, which `devices` converts into device-hours."""
    devices: float | None = None
    step: str | None = None
    """The column of the optimizer step."""
    time: str | None = None
    """The column of the Unix seconds of each evaluation."""
    unit: str | None = None
    """What compute is counted in; its numbers are then taken as they are. None = from the name of the column."""
    in_run_file: bool = False
    """Whether these are settings of a run file, which sentences spell `pass_rate:`, or options: `--pass-rate`."""

    def option(self, name: str) -> str:
        """How a sentence spells one of these fields."""
        return f"{name}:" if self.in_run_file else f"--{name.replace('_', '-')}"


@dataclass(frozen=True)
class CurveColumns:
    """The columns of a sheet that hold its curve; None: the sheet has no such column."""

    compute: str
    pass_rate: str
    standard_error: str | None
    truncation_ratio: str | None
    step: str | None
    time: str | None
    unit: str
    """What compute is counted in."""


def find_column(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The first of the wanted columns that is among the names, as the file spells it; None if none is.

    Upper and lower case are the same, unless two columns of the file differ in nothing else.
    """
    spellings = list(names)
    by_folded = {name.casefold(): name for name in reversed(spellings)}
    for name in wanted:
        if name in spellings:
            return name
        if name.casefold() in by_folded:
            return by_folded[name.casefold()]
    return None


def words_of(name: str) -> set[str]:
    """The words of a column's name, in lower case: `train/global_step` -> train, global, step."""
    return {word.casefold() for word in _WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", name))}


def unit_of(column: str) -> str:
    """The unit in the name of a column. A name without one becomes the unit: `units of flops`."""
    words = words_of(column)
    if {"gpu", "gpus"} & words and {"hours", "hour", "h"} & words:
        return GPU_HOURS
    if column.casefold() in COMPUTE_NAMES or {"device", "hours"} <= words:
        return DEVICE_HOURS
    found = next((unit for unit, marks in _UNITS_BY_WORD if marks & words), None)
    is_rate = bool(words & _RATE_WORDS) or (found == STEPS and bool(words & _DURATION_WORDS))
    return f"units of {column}" if found is None or is_rate or words & _OTHER_TIME_WORDS else found


def curve_columns(sheet: Sheet, asked: Columns) -> CurveColumns:
    """The columns that hold the curve. Raises UserError: one is missing, or several could be meant, and what helps."""

    names = list(sheet.columns)

    def named(option: str, usual: Sequence[str] = ()) -> str | None:
        """The column that was asked for, or else the first with a usual name, as the sheet spells it."""
        asked_name = getattr(asked, option)
        found = find_column(names, usual if asked_name is None else (asked_name,))
        if found is None and asked_name is not None:
            raise UserError(f"no column {asked_name!r}; name one of {some(names)} with {asked.option(option)}")
        return found

    def one_of(found: list[str], option: str, usual: Sequence[str], what: str) -> str:
        if len(found) > 1:
            raise UserError(f"{some(found)} could each be the {what}; choose one with {asked.option(option)}")
        # If a column has a usual name but holds no number, a later sentence says so.
        name = found[0] if found else named(option, usual)
        if name is None:
            none = f"none of the columns {', '.join(usual)}"
            raise UserError(f"{none}; name one of {some(names)} with {asked.option(option)}")
        return name

    pass_rate = named("pass_rate")
    if pass_rate is None:
        pass_rate = one_of(pass_rate_columns(sheet), "pass_rate", PASS_RATE_NAMES, "pass rate")
    if asked.seconds is not None or asked.devices is not None:
        _check_seconds(asked)
    compute = named("compute" if asked.seconds is None else "seconds")
    if compute is None:
        compute = one_of(compute_columns(sheet, pass_rate), "compute", COMPUTE_NAMES, "compute")
    unit = unit_of(compute) if asked.unit is None else asked.unit
    step = named("step", STEP_NAMES)
    return CurveColumns(
        compute=compute,
        pass_rate=pass_rate,
        standard_error=named("standard_error", STANDARD_ERROR_NAMES),
        truncation_ratio=named("truncation_ratio", TRUNCATION_NAMES),
        step=compute if unit == STEPS and asked.step is None else step,
        time=named("time"),
        unit=unit,
    )


def _check_seconds(asked: Columns) -> None:
    """Raises UserError unless seconds and devices are given together, and instead of compute."""
    if asked.seconds is None:
        raise UserError(f"--devices {asked.devices:g}: needs --seconds, the column of the time that passed")
    if asked.compute is not None:
        raise UserError(f"--seconds {asked.seconds}: --compute is given too; leave one of them out")
    if asked.devices is None:
        raise UserError(f"--seconds {asked.seconds}: needs --devices, to count device-hours")
    if not 0 < asked.devices <= MAX_DEVICES:
        raise UserError(f"--devices {asked.devices:g}: give the number of devices that the run had, 1 or more")


def some(names: Sequence[str]) -> str:
    """The first ten names, for a sentence."""
    more = ", ..." if len(names) > MAX_NAMES_IN_A_SENTENCE else ""
    return ", ".join(map(shown, names[:MAX_NAMES_IN_A_SENTENCE])) + more


def pass_rate_columns(sheet: Sheet) -> list[str]:
    """The columns of the best rank that the sheet has; of columns that hold the same values only the first.

    If no name is that of a measure, the one column that is not compute either: `Value` of `Wall time,Step,Value`.
    """
    ranked: dict[Rank, list[str]] = {}
    for name in sheet.columns:
        if (rank := rank_of(name)) is not None:
            ranked.setdefault(rank, []).append(name)
    for rank in sorted(ranked):
        best: dict[bytes, str] = {}
        for name in ranked[rank]:
            values = sheet.numbers(name).values
            if np.any(np.isfinite(values)):
                # Adding 0.0 makes 0.0 of -0.0, and one nan of all kinds of nan.
                same = np.where(np.isnan(values), np.nan, values + 0.0)
                best.setdefault(sha256(same.tobytes()).digest(), name)
        if best:
            return list(best.values())
    numeric = [name for name in sheet.columns if np.any(np.isfinite(sheet.numbers(name).values))]
    others = []
    for name in numeric:
        is_compute = name.casefold() in (*STEP_NAMES, *TIME_NAMES) or not unit_of(name).startswith("units of ")
        if not is_compute:
            others.append(name)
    return others if len(others) == 1 < len(numeric) and not words_of(others[0]) & OTHER_WORDS else []


def rank_of(name: str) -> Rank | None:
    """Lower is better: held out or not, the kind of measure, the number of attempts. None: not a measure of success."""
    folded = name.casefold()
    if folded == EVALUATION_NAMES[0]:
        return (-1, 0, 0)
    words = words_of(name)
    if folded in PASS_RATE_NAMES:
        is_held_out = folded in EVALUATION_NAMES
    elif words & OTHER_WORDS:
        return None
    else:
        is_held_out = bool(words & HELD_OUT_WORDS) and "train" not in words
    if _MEAN_OF_MANY.search(name):
        attempts = 0
    elif _ONE_OF_MANY.search(name):
        attempts = 2
    else:
        attempts = 1
    if words & ACCURACY_WORDS or (attempts != 1 and not words & (SCORE_WORDS | REWARD_WORDS)):
        kind = 0
    elif words & SCORE_WORDS:
        kind = 1
    elif words & REWARD_WORDS:
        kind = 2
    else:
        return None
    return (0 if is_held_out else 1, kind, attempts)


def compute_columns(sheet: Sheet, pass_rate: str) -> list[str]:
    """Columns of compute: device-hours, else steps, else the one of tokens, samples, time or epochs there is.

    Of device-hours and steps the first name that has a value for almost every evaluation; of others one for each unit.
    If none has, the one that has a value for most of them.
    """
    names = list(sheet.columns)
    is_evaluation = sheet.numbers(pass_rate).given
    num_evaluations = max(int(is_evaluation.sum()), 1)

    def covered_share(name: str) -> float:
        return int((sheet.numbers(name).given & is_evaluation).sum()) / num_evaluations

    sparse: list[str] = []
    for usual in (COMPUTE_NAMES, STEP_NAMES):
        there = [found for name in usual if (found := find_column(names, (name,))) is not None]
        if covering := [name for name in there if covered_share(name) >= MIN_COVERED_SHARE]:
            return covering[:1]
        sparse.extend(there)
    by_unit: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name.casefold() not in TIME_NAMES):
        unit = unit_of(name)
        if unit in (STEPS, TOKENS, SAMPLES, SECONDS, HOURS, EPOCHS) and covered_share(name) >= MIN_COVERED_SHARE:
            by_unit.setdefault(unit, name)
    if len(by_unit) > 1:
        by_unit.pop(EPOCHS, None)
    return list(by_unit.values()) or sorted(sparse, key=covered_share)[-1:]
