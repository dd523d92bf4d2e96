"""Names of columns: the requested ones, the usual ones, the words and the units in them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rollcast.curves.sheet import shorten_name
from rollcast.scaling.law.curve import DEVICE_HOURS

COMPUTE_NAMES = (
    "compute_device_hours",
    "compute",
    "device_hours",
    "gpu_hours",
    "gpu_hours_excl_eval",
)
EVALUATION_NAMES = ("pass_rate", "accuracy", "score", "eval_acc", "eval_accuracy", "eval_reward")
PASS_RATE_NAMES = (*EVALUATION_NAMES, "reward", "mean_reward")
"""The last two may be of training."""
STANDARD_ERROR_NAMES = ("standard_error", "stderr")
TRUNCATION_NAMES = ("truncation_ratio", "truncation_rate", "truncated")
STEP_NAMES = (
    "global_step", "train/global_step", "trainer/global_step", "training/global_step",
    "training_step", "step",
    "train_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Names of the optimizer step, in the order in which they are looked for; W&B's own counter of
calls last."""
CALL_COUNTER = "_step"
"""W&B counts its calls of `log` under this name, often several of them a step."""
_COUNTED_WORDS = {
    "step", "steps", "iteration", "iterations", "iter", "iters", "update", "updates", "timestep",
    "timesteps", "batch",
    "batches",
}  # fmt: skip
_PLURALS = {word for word in _COUNTED_WORDS if word.endswith("s")}
_COUNTER_WORDS = {
    "global", "train", "training", "trainer", "optimizer", "optim", "opt", "eval", "evaluation",
    "val", "validation",
    "test", "grpo", "ppo", "rl", "rloo", "dapo", "policy", "actor", "critic", "learner", "index",
    "idx", "number", "no",
    "n", "num", "id", "current", "cur", "gradient", "completed", "done", "rollout", "outer",
    "progress", "total", "env",
    "sampled", "trained", "lifetime", "agent", "counter", "count",
}  # fmt: skip
"""Next to a counted word these make the name of a counter, `grpo_step`, `batch_index`; its values
must rise."""
TIME_NAMES = (
    "_runtime",
    "runtime",
    "elapsed",
    "elapsed_seconds",
    "_timestamp",
    "timestamp",
    "wall_time",
    "time",
)

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
    (SAMPLES, {"sample", "samples", "episode", "episodes", "rollouts", "prompts", "examples",
        "problems"}),
    (STEPS, {"step", "steps", "iteration", "iterations", "iter", "iters", "update", "updates"}),
    (EPOCHS, {"epoch", "epochs"}),
    (HOURS, {"hour", "hours", "hrs"}),
    (SECONDS, {"second", "seconds", "sec", "runtime", "elapsed", "time", "timestamp", "date",
        "clock"}),
)  # fmt: skip
_RATE_WORDS = {"per", "throughput", "rate", "accuracy", "acc"}
_OTHER_TIME_WORDS = {
    "minute",
    "minutes",
    "min",
    "mins",
    "ms",
    "millis",
    "milliseconds",
    "ns",
    "us",
    "day",
    "days",
}
"""Not converted into seconds: the unit is the name of the column."""
_DURATION_WORDS = {"time", "timing", "duration", "seconds", "sec"}
"""Next to the word step these mean the duration of one step."""
_WORDS = re.compile(r"[A-Za-z]+")

MAX_NAMES_IN_A_SENTENCE = 10


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
    """Times the pass rates, after `offset` was added, and times their standard errors."""
    offset: float = 0.0
    """Added to the pass rates before they are scaled: 1, with scale 0.5, maps rewards in [-1, 1] to
    [0, 1]."""
    seconds: str | None = None
    """Instead of `compute`: the column of the elapsed time, which `devices` converts into
    device-hours."""
    devices: float | None = None
    step: str | None = None
    """The column of the optimizer step."""
    time: str | None = None
    """The column of the Unix seconds of each evaluation."""
    unit: str | None = None
    """What compute is counted in; its numbers are then taken as they are. None = from the name of
    the column."""
    in_run_file: bool = False
    """Whether these are settings of a run file, which sentences spell `pass_rate:`, or options:
    `--pass-rate`."""

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


def find_column(names: Iterable[str], wanted_names: Iterable[str]) -> str | None:
    """The first of the wanted columns that is among the names, as the file spells it; None if none
    is.

    Upper and lower case are the same, unless two columns of the file differ in nothing else.
    """
    spellings = list(names)
    # Reversed, so that of two spellings the first column of the file is found.
    by_folded = {name.casefold(): name for name in reversed(spellings)}
    for name in wanted_names:
        if name in spellings:
            return name
        if name.casefold() in by_folded:
            return by_folded[name.casefold()]
    return None


def words_in(name: str) -> set[str]:
    """The words of a column's name, in lower case: `train/global_step` -> train, global, step."""
    # Names in camel case have no separator: `evalReward` is eval and reward.
    return {word.casefold() for word in _WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", name))}


def is_step_counter(name: str) -> bool:
    """Whether the name can be that of a counter of steps: `eval_step`, `progress/batch`,
    `time/total_timesteps`.
    """
    words = words_in(name)
    counted = words & _COUNTED_WORDS
    # stable-baselines3 has its counters under time/; `step_time` is a duration.
    if name.casefold().startswith("time/") and counted & _PLURALS:
        words = words - {"time"}
    return bool(counted) and words <= _COUNTED_WORDS | _COUNTER_WORDS


def find_unit(column: str) -> str:
    """The unit in the name of a column. A name without one becomes the unit: `units of flops`."""
    words = words_in(column)
    # Before the words of units: `time/total_timesteps` counts steps, although it names a time.
    if is_step_counter(column):
        return STEPS
    if {"gpu", "gpus"} & words and {"hours", "hour", "h"} & words:
        return GPU_HOURS
    if column.casefold() in COMPUTE_NAMES or {"device", "hours"} <= words:
        return DEVICE_HOURS
    named_unit = next((unit for unit, marks in _UNITS_BY_WORD if marks & words), None)
    # `tokens_per_second` and `step_time` name a unit too, but do not add up over a run.
    is_rate = bool(words & _RATE_WORDS) or (named_unit == STEPS and bool(words & _DURATION_WORDS))
    return (
        f"units of {column}"
        if named_unit is None or is_rate or words & _OTHER_TIME_WORDS
        else named_unit
    )


def some(names: Sequence[str]) -> str:
    """The first ten names, for a sentence."""
    more = ", ..." if len(names) > MAX_NAMES_IN_A_SENTENCE else ""
    return ", ".join(map(shorten_name, names[:MAX_NAMES_IN_A_SENTENCE])) + more
