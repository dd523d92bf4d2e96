"""In what a curve's compute is counted: words, told by the name of the column that holds it."""

from __future__ import annotations

import re

from rollcast.config.curve_columns import COMPUTE_NAMES
from rollcast.scaling.law.curve import DEVICE_HOURS

GPU_HOURS = "GPU-hours"
HOURS = "hours"
SECONDS = "seconds"
STEPS = "steps"
TOKENS = "tokens"
SAMPLES = "samples"
EPOCHS = "epochs"
TIME_UNITS = (DEVICE_HOURS, GPU_HOURS, HOURS, SECONDS)
"""Of these a start-up takes some, in which nothing is learned."""
_BY_WORD = (
    (TOKENS, {"token", "tokens", "tok"}),
    (SAMPLES, {"sample", "samples", "episode", "episodes", "rollouts", "prompts", "examples", "problems"}),
    (STEPS, {"step", "steps", "iteration", "iterations", "iter", "iters", "update", "updates"}),
    (EPOCHS, {"epoch", "epochs"}),
    (HOURS, {"hour", "hours", "hrs"}),
    (SECONDS, {"second", "seconds", "sec", "runtime", "elapsed", "time", "timestamp", "date", "clock"}),
)  # fmt: skip
_RATES = {"per", "throughput", "rate"}
_OTHER_TIMES = {"minute", "minutes", "min", "mins", "ms", "millis", "milliseconds", "ns", "us", "day", "days"}
"""Not turned into seconds: the unit stays what the column says."""
_DURATIONS = {"time", "timing", "duration", "seconds", "sec"}
"""Beside a step these are how long one takes."""
_WORDS = re.compile(r"[A-Za-z]+")


def unit_of(column: str) -> str:
    """The unit that the name of a column tells; one that tells none is named itself: `units of flops`."""
    words = words_of(column)
    if {"gpu", "gpus"} & words and {"hours", "hour", "h"} & words:
        return GPU_HOURS
    if column.casefold() in COMPUTE_NAMES or {"device", "hours"} <= words:
        return DEVICE_HOURS
    found = next((unit for unit, marks in _BY_WORD if marks & words), None)
    is_rate = bool(words & _RATES) or (found == STEPS and bool(words & _DURATIONS))
    return f"units of {column}" if found is None or is_rate or words & _OTHER_TIMES else found


def words_of(name: str) -> set[str]:
    """The words of a column's name, in lower case: `train/global_step` -> train, global, step."""
    return {word.casefold() for word in _WORDS.findall(re.sub(r"([a-z])([A-Z])", r"\1 \2", name))}
