"""Usual names of the columns of a curve in a file, in the order in which they are looked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

COMPUTE_NAMES = ("compute_device_hours", "compute", "device_hours", "gpu_hours", "gpu_hours_excl_eval")
EVALUATION_NAMES = ("pass_rate", "accuracy", "score", "eval_acc", "eval_accuracy", "eval_reward")
PASS_RATE_NAMES = (*EVALUATION_NAMES, "reward", "mean_reward")
"""The last two may be of training; they count where the columns of the whole file are known."""
STANDARD_ERROR_NAMES = ("standard_error", "stderr")
TRUNCATION_NAMES = ("truncation_ratio", "truncation_rate", "truncated")
TRAINED_TOKENS_NAMES = ("trained_tokens",)
SAMPLES_NAMES = ("samples",)
START_UP_NAMES = ("start_up_device_hours",)
DEVICES_NAMES = ("devices",)
GRADED_NAMES = ("num_prompts",)
ASKED_NAMES = ("asked_prompts",)
MISSING_NAMES = ("missing_prompts",)
"""The last seven as Rollcast itself writes them; other files seldom have them."""
STEP_NAMES = ("step", "global_step", "training_step")


def find_column(names: Iterable[str], wanted: Iterable[str]) -> str | None:
    """The name as the file writes it of the first of `wanted` that is there; None where none is.

    Upper and lower case are the same, except where the file tells two columns apart by nothing else.
    """
    return _found(tuple(names), tuple(wanted))


@lru_cache(maxsize=256)
def _found(there: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    """Kept: the rows of a file, a million perhaps, have few sets of columns."""
    by_folded = {name.casefold(): name for name in reversed(there)}
    for name in wanted:
        if name in there:
            return name
        if name.casefold() in by_folded:
            return by_folded[name.casefold()]
    return None
