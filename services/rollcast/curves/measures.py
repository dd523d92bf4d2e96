"""Which column of somebody else's file is the pass rate, and which the compute.

A column is ranked by the words of its name. Held-out measures come before those of training, accuracies before scores
and these before rewards, the mean of all attempts before the best of them. Where the first rank holds several columns
that differ, the user is asked; nothing is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import sha256

import numpy as np

from rollcast.config.curve_columns import COMPUTE_NAMES, EVALUATION_NAMES, PASS_RATE_NAMES, find_column
from rollcast.curves.sheet import Mask, Sheet
from rollcast.curves.units import EPOCHS, HOURS, SAMPLES, SECONDS, STEPS, TOKENS, unit_of, words_of

HELD_OUT = {"eval", "evaluation", "val", "valid", "validation", "test", "heldout", "held", "dev"}
ACCURACY = {"acc", "accuracy", "pass", "passrate", "correct", "correctness", "solved", "solve", "success", "em"}
SCORE = {"score", "scores"}
REWARD = {"reward", "rewards"}
NO_MEASURE = {
    "std", "stderr", "error", "var", "min", "max", "median", "loss", "kl", "length", "lengths", "len", "entropy",
    "grad", "norm", "lr", "count", "num", "clip", "clipped", "format", "turns", "runtime", "second", "seconds",
    "time", "timing", "tokens", "samples", "filter", "filtering", "aux", "advantage", "advantages", "baseline",
    "zero", "weight", "penalty", "margin", "margins", "steps", "response", "truncated", "ci", "bonus",
    "token", "threshold", "gap", "step", "diff", "delta", "fail", "failed",
}  # fmt: skip
"""Words of what is no measure of success, or only its spread."""
_ONE_OF_MANY = re.compile(r"(best|maj|worst|majority)@?\d+|pass(@|_at_|_)?([2-9]|[1-9]\d+)(?!\d)", re.IGNORECASE)
"""The best or the majority of several attempts, which rises with their number."""
_MEAN_OF_MANY = re.compile(r"(mean|avg|average)@\d+|pass(@|_at_|_)?1(?!\d)", re.IGNORECASE)
STEP_ORDER = (
    "global_step", "train/global_step", "trainer/global_step", "training/global_step", "training_step", "step",
    "train_step", "iteration", "iter", "update", "_step",
)  # fmt: skip
"""Names of the optimizer step; W&B's own counter of calls last."""
TIMES = ("_runtime", "runtime", "elapsed", "elapsed_seconds", "_timestamp", "timestamp", "wall_time", "time")
COVERED = 0.95
"""Share of the readings that a column of compute must stand beside."""
Rank = tuple[int, int, int]


def pass_rate_columns(sheet: Sheet) -> list[str]:
    """The columns of the best rank that there is, one of those that agree.

    Where no name tells a measure, the one column that tells no compute either: `Wall time,Step,Value` has no other.
    """
    ranked: dict[Rank, list[str]] = {}
    for name in sheet.names:
        if (rank := rank_of(name)) is not None:
            ranked.setdefault(rank, []).append(name)
    for rank in sorted(ranked):
        if best := [name for name in ranked[rank] if _is_numeric(sheet, name)]:
            return _distinct(sheet, best)
    numeric = [name for name in sheet.names if _is_numeric(sheet, name)]
    others = [name for name in numeric if not _tells_compute(name)]
    return others if len(others) == 1 < len(numeric) and not words_of(others[0]) & NO_MEASURE else []


def _is_numeric(sheet: Sheet, name: str) -> bool:
    return bool(np.any(np.isfinite(sheet.numbers(name).values)))


def _tells_compute(name: str) -> bool:
    folded = name.casefold()
    return folded in STEP_ORDER or folded in TIMES or not unit_of(name).startswith("units of ")


def rank_of(name: str) -> Rank | None:
    """Lower is better: held out or not, what is measured, of how many attempts. None: no measure of success."""
    folded = name.casefold()
    if folded == EVALUATION_NAMES[0]:
        return (-1, 0, 0)
    words = words_of(name)
    attempts = 0 if _MEAN_OF_MANY.search(name) else 2 if _ONE_OF_MANY.search(name) else 1
    if folded in PASS_RATE_NAMES:
        held_out = folded in EVALUATION_NAMES
    elif words & NO_MEASURE:
        return None
    else:
        held_out = bool(words & HELD_OUT) and not words & {"train"}
    if words & ACCURACY or (attempts != 1 and not words & (SCORE | REWARD)):
        kind = 0
    elif words & SCORE:
        kind = 1
    elif words & REWARD:
        kind = 2
    else:
        return None
    return (0 if held_out else 1, kind, attempts)


def compute_columns(sheet: Sheet, pass_rate: str) -> list[str]:
    """Columns of compute: device-hours, else steps, else the one of tokens, samples, time or epochs there is.

    Of device-hours and steps the first by name that stands beside almost every reading; of others, one for each unit.
    Only where none does, the one that stands beside most of them.
    """
    names = sheet.names
    stands_beside = _beside(sheet, sheet.numbers(pass_rate).given)
    sparse: list[str] = []
    for usual in (COMPUTE_NAMES, STEP_ORDER):
        there = [found for name in usual if (found := find_column(names, (name,))) is not None]
        if covering := [name for name in there if stands_beside(name) >= COVERED]:
            return covering[:1]
        sparse.extend(there)
    by_unit: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name.casefold() not in TIMES):
        unit = unit_of(name)
        if unit in (STEPS, TOKENS, SAMPLES, SECONDS, HOURS, EPOCHS) and stands_beside(name) >= COVERED:
            by_unit.setdefault(unit, name)
    if len(by_unit) > 1:
        by_unit.pop(EPOCHS, None)
    return list(by_unit.values()) or sorted(sparse, key=stands_beside)[-1:]


def _beside(sheet: Sheet, is_reading: Mask) -> Callable[[str], float]:
    readings = max(int(is_reading.sum()), 1)
    return lambda name: int((sheet.numbers(name).given & is_reading).sum()) / readings


def _distinct(sheet: Sheet, names: Sequence[str]) -> list[str]:
    """Without those that hold the values of another one."""
    kept: dict[bytes, str] = {}
    for name in names:
        values = np.where(np.isnan(sheet.numbers(name).values), np.nan, sheet.numbers(name).values + 0.0)  # no -0.0
        kept.setdefault(sha256(values.tobytes()).digest(), name)
    return list(kept.values())
