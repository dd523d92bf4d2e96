"""What to do about pass rates outside [0, 1]: one sentence with the options that map them into it."""

import math

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.columns import Columns, words_in
from rollcast.curves.measures import ACCURACY_WORDS
from rollcast.curves.sheet import PER_CENT, shown
from rollcast.scaling.law.curve import Array

MAX_PER_CENT = 100.0
MAX_REWARD = 10.0
"""A larger one is rare, so the numbers are more likely to be per cent."""
ROUNDING = 1e-9
"""Floats: 0.5 / 0.001 may be a little less than 500."""
_PER_CENT_WORDS = {"percent", "pct", "percentage"}


def per_cent_by_name(values: Array, column: str, asked: Columns) -> str:
    """A sentence on a column that is called per cent but holds parts of 1; empty for another one.

    `values`: (n,) as the file holds them, nan if unknown. So small a percentage all run long is less likely.
    """
    known = values[np.isfinite(values)]
    is_as_written = asked.scale == 1 and asked.offset == 0
    if not (is_as_written and _is_per_cent(column) and known.size and known.max() <= 1):
        return ""
    return (
        f"{shown(column)} is per cent by its name but holds at most {known.max():g}, read as parts of 1; if it is per "
        f"cent, add {asked.option('scale')} 0.01"
    )


def refuse_outside(mapped: Array, column: str, asked: Columns) -> None:
    """Raises UserError, with a remedy, unless all pass rates (n,) of a column are in [0, 1]; `asked` mapped them."""
    if not mapped.size or (mapped.min() >= 0 and mapped.max() <= 1):
        return
    values = mapped / asked.scale - asked.offset
    raise UserError(_complaint(values, mapped, column, asked))


def _complaint(values: Array, mapped: Array, column: str, asked: Columns) -> str:
    """`values`: (n,) as the file holds them."""
    worst = values[mapped.argmax()] if mapped.max() > 1 else values[mapped.argmin()]
    where = f"column {shown(column)} holds {worst:g}, and pass rates lie in [0, 1]"
    least = float(values.min())
    largest = float(values.max())
    scale = asked.option("scale")
    offset = asked.option("offset")
    is_rate = bool(words_in(column) & ACCURACY_WORDS) or _is_per_cent(column)
    if asked.scale != 1 or asked.offset != 0:
        return f"{where}; {offset} {asked.offset:g} and {scale} {asked.scale:g} map it to {_farthest(mapped):g}"
    if least >= 0 and largest <= MAX_PER_CENT and is_rate:
        return f"{where}; if it is per cent, add {scale} 0.01"
    per_cent = f"if it is per cent, add {scale} 0.01; " if least >= 0 and MAX_REWARD < largest <= MAX_PER_CENT else ""
    low = min(math.floor(least), 0)
    high = max(math.ceil(largest), 1)
    if least < 0 and largest <= 0:
        high = 0
    mapping = f"{scale} {_rounded_down(1 / (high - low)):g}"
    if low:
        mapping = f"{offset} {-low:g} {mapping}"
    possible = "with the least and the largest reward that is possible in place of these"
    return f"{where}; {per_cent}for rewards from {low:g} to {high:g} add {mapping}, {possible}"


def _is_per_cent(column: str) -> bool:
    return PER_CENT in column or bool(words_in(column) & _PER_CENT_WORDS)


def _rounded_down(value: float) -> float:
    """Round to three digits, so that the largest reward is mapped to no more than 1."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.floor(value / unit + ROUNDING) * unit


def _farthest(mapped: Array) -> float:
    """The value that is farthest from [0, 1]."""
    below = float(-mapped.min())
    above = float(mapped.max() - 1)
    return float(mapped.max() if above >= below else mapped.min())
