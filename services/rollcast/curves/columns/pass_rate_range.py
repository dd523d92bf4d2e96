"""Options for pass rates outside [0, 1]: one sentence with the options
that map them into it.
"""

import math
import re

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns, named_columns
from rollcast.curves.columns.curve_sheet import CurveSheet
from rollcast.curves.columns.named_column import NamedColumn
from rollcast.curves.columns.names import name_of_ratio
from rollcast.curves.columns.ratios import find_total
from rollcast.curves.columns.words import ACCURACY_WORDS
from rollcast.curves.sheet import shorten_name
from rollcast.scaling.law.curve import Array

_MEAN = re.compile(r"(?<![A-Za-z])(?:mean|avg|average)(?![A-Za-z])")


def refuse_outside(mapped: Array, curve: CurveSheet) -> None:
    """Raises UserError, with a remedy, unless all pass rates (n,) are in [0, 1], to which the
    user's scale and offset mapped them.
    """
    if mapped.size and not (mapped.min() >= 0 and mapped.max() <= 1):
        column = NamedColumn(curve.columns.pass_rate, curve.sheet)
        raise UserError(_complaint(mapped, column, curve.column_options))


def _complaint(mapped: Array, column: NamedColumn, column_options: Columns) -> str:
    values = mapped / column_options.scale - column_options.offset
    worst = values[mapped.argmax()] if mapped.max() > 1 else values[mapped.argmin()]
    where = f"column {shorten_name(column.name)} holds {worst:g}, and pass rates lie in [0, 1]"
    smallest = float(values.min())
    largest = float(values.max())
    scale = column_options.option("scale")
    offset = column_options.option("offset")
    is_rate = bool(column.words & ACCURACY_WORDS) or column.is_per_cent
    if column_options.scale != 1 or column_options.offset != 0:
        mapping = f"{offset} {column_options.offset:g} and {scale} {column_options.scale:g}"
        return f"{where}; {mapping} map it to {_farthest(mapped):g}"
    if smallest >= 0 and column.is_count and bool(np.all(values == np.floor(values))):
        return f"{where}; {_remedy_of_count(column, column_options)}"
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
    if bounds := _bounds_beside(column):
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


def _remedy_of_count(column: NamedColumn, column_options: Columns) -> str:
    """Options for a number of right answers."""
    scale = column_options.option("scale")
    total = find_total(named_columns(column.sheet), column)
    if total is not None and name_of_ratio(column.name, total.name) in column.sheet.columns:
        ratio = name_of_ratio(column.name, total.name)
        return f"it counts right answers, so give {column_options.option('pass_rate')} {ratio!r}"
    if total is not None:
        return (
            f"it counts right answers, which {total.name} divides; add {scale} with 1 / "
            f"{total.name}"
        )
    return f"if it counts the right ones of N answers, add {scale} with 1 / N"


def _bounds_beside(column: NamedColumn) -> tuple[float, float] | None:
    """The least and the largest value that columns next to a mean hold, `critic/score/min` and
    `.../max`; or None.
    """
    names = [_MEAN.sub(word, column.name) for word in ("min", "max")]
    lowest, highest = (NamedColumn(name, column.sheet).finite_values for name in names)
    if column.name in names or not (lowest.size and highest.size) or lowest.min() >= highest.max():
        return None
    return float(lowest.min()), float(highest.max())


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
