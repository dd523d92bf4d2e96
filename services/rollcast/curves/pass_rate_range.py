"""What to do about pass rates outside [0, 1]: one sentence with the options
that map them into it.
"""

import math
import re

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.columns import Columns, words_in
from rollcast.curves.measures import ACCURACY_WORDS, is_count_name, name_of_ratio
from rollcast.curves.ratios import find_total
from rollcast.curves.sheet import PER_CENT, Sheet, shorten_name
from rollcast.scaling.law.curve import Array

_MEAN = re.compile(r"(?<![A-Za-z])(?:mean|avg|average)(?![A-Za-z])")
_PER_CENT_WORDS = {"percent", "pct", "percentage"}


def per_cent_by_name(values: Array, column: str, column_options: Columns) -> str:
    """A sentence on a column that is called per cent but holds parts of 1; empty for another one.

    `values`: (n,) as the file holds them, nan if unknown. So small a percentage all run long is
    less likely.
    """
    finite_values = values[np.isfinite(values)]
    is_as_written = column_options.scale == 1 and column_options.offset == 0
    if not (
        is_as_written and _is_per_cent(column) and finite_values.size and finite_values.max() <= 1
    ):
        return ""
    return (
        f"{shorten_name(column)} is per cent by its name but holds at most "
        f"{finite_values.max():g}, read as parts of "
        f"1; if it is per cent, add {column_options.option('scale')} 0.01"
    )


def refuse_outside(mapped: Array, sheet: Sheet, column: str, column_options: Columns) -> None:
    """Raises UserError, with a remedy, unless all pass rates (n,) of a column are in [0, 1];
    `column_options` mapped them.
    """
    if not mapped.size or (mapped.min() >= 0 and mapped.max() <= 1):
        return
    values = mapped / column_options.scale - column_options.offset
    raise UserError(_complaint(values, mapped, sheet, column, column_options))


def _complaint(
    values: Array, mapped: Array, sheet: Sheet, column: str, column_options: Columns
) -> str:
    """`values`: (n,) as the file holds them."""
    worst = values[mapped.argmax()] if mapped.max() > 1 else values[mapped.argmin()]
    where = f"column {shorten_name(column)} holds {worst:g}, and pass rates lie in [0, 1]"
    smallest = float(values.min())
    largest = float(values.max())
    scale = column_options.option("scale")
    offset = column_options.option("offset")
    is_rate = bool(words_in(column) & ACCURACY_WORDS) or _is_per_cent(column)
    if column_options.scale != 1 or column_options.offset != 0:
        mapping = f"{offset} {column_options.offset:g} and {scale} {column_options.scale:g}"
        return f"{where}; {mapping} map it to {_farthest(mapped):g}"
    if smallest >= 0 and is_count_name(column) and bool(np.all(values == np.floor(values))):
        return f"{where}; {_remedy_of_count(sheet, column, column_options)}"
    max_per_cent = 100.0
    if smallest >= 0 and largest <= max_per_cent and is_rate:
        return f"{where}; if it is per cent, add {scale} 0.01"
    # A larger one is rare, so the numbers are more likely to be per cent
    per_cent = (
        f"if it is per cent, add {scale} 0.01; "
        if smallest >= 0 and 10.0 < largest <= max_per_cent
        else ""
    )
    low = float(min(math.floor(smallest), 0))
    high = float(max(math.ceil(largest), 1))
    if smallest < 0 and largest <= 0:
        high = 0.0
    if bounds := _bounds_beside(sheet, column):
        low = min(bounds[0], 0.0)
        high = bounds[1]
        per_cent = ""
    mapping = f"{scale} {_rounded_down(1 / (high - low)):g}"
    if low:
        mapping = f"{offset} {-low:g} {mapping}"
    possible = "with the least and the largest reward that is possible in place of these"
    if bounds:
        possible = "the least and the largest single reward of the log"
    return f"{where}; {per_cent}for rewards from {low:g} to {high:g} add {mapping}, {possible}"


def _remedy_of_count(sheet: Sheet, column: str, column_options: Columns) -> str:
    """What to do with a number of right answers."""
    scale = column_options.option("scale")
    total = find_total(sheet, column)
    if total is not None and name_of_ratio(column, total.name) in sheet.columns:
        ratio = name_of_ratio(column, total.name)
        return f"it counts right answers, so give {column_options.option('pass_rate')} {ratio!r}"
    if total is not None:
        return (
            f"it counts right answers, which {total.name} divides; add {scale} with 1 / "
            f"{total.name}"
        )
    return f"if it counts the right ones of N answers, add {scale} with 1 / N"


def _bounds_beside(sheet: Sheet, column: str) -> tuple[float, float] | None:
    """The least and the largest value that columns next to a mean hold, `critic/score/min` and
    `.../max`; or None.
    """
    bounds = []
    for word in ("min", "max"):
        name = _MEAN.sub(word, column)
        values = sheet.numbers(name).values
        finite_values = values[np.isfinite(values)]
        if name == column or not finite_values.size:
            return None
        bounds.append(float(finite_values.min() if word == "min" else finite_values.max()))
    return (bounds[0], bounds[1]) if bounds[0] < bounds[1] else None


def _is_per_cent(column: str) -> bool:
    return PER_CENT in column or bool(words_in(column) & _PER_CENT_WORDS)


def _rounded_down(value: float) -> float:
    """Round to three digits, so that the largest reward is mapped to no more than 1."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    # Floats: 0.5 / 0.001 may be a little less than 500
    return math.floor(value / unit + 1e-9) * unit


def _farthest(mapped: Array) -> float:
    """The value that is farthest from [0, 1]."""
    below = float(-mapped.min())
    above = float(mapped.max() - 1)
    return float(mapped.max() if above >= below else mapped.min())
