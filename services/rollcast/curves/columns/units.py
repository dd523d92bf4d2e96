"""The units of compute, and the one that the name of a column says."""

from rollcast.curves.columns.names import is_step_counter, words_in
from rollcast.curves.columns.words import COMPUTE_NAMES
from rollcast.scaling.law.curve import DEVICE_HOURS

GPU_HOURS = "GPU-hours"
HOURS = "hours"
SECONDS = "seconds"
STEPS = "steps"
TOKENS = "tokens"
SAMPLES = "samples"
EPOCHS = "epochs"
TIME_UNITS = (DEVICE_HOURS, GPU_HOURS, HOURS, SECONDS)
"""A start-up takes some of these, and nothing is learned in it."""
COUNTS = (STEPS, TOKENS, SAMPLES, EPOCHS)
"""Numbers of these units may look like those of a clock, but are not."""
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
    "minute", "minutes", "min", "mins", "ms", "millis", "milliseconds", "ns", "us", "day", "days"
}  # fmt: skip
"""Not converted into seconds: the unit is the name of the column."""
_DURATION_WORDS = {"time", "timing", "duration", "seconds", "sec"}
"""Next to the word step these mean the duration of one step."""
NO_UNIT = "units of "
"""Begins the unit of a column whose name says none."""


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
        f"{NO_UNIT}{column}"
        if named_unit is None or is_rate or words & _OTHER_TIME_WORDS
        else named_unit
    )
