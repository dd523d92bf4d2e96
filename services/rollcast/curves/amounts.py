"""Numbers as people read them: quantiles by name, amounts of compute, differences of pass rates,
numbered names, and how many items were left out.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rollcast.runfolder.survival import MIN_GRADED_SHARE
from rollcast.scaling.decisions.digits import difference

MEDIAN_AND_90 = (0.05, 0.5, 0.95)
"""Levels of the median and the 90 % interval."""
Tell = Callable[[str], None]
"""Receives a sentence on data that was left out, or that was read differently from how it is
written."""
Interval = dict[str, float | None]
"""Quantiles by name, as q05, q50 and q95; None = never."""
DIFFERENCE = "difference"
"""The form of a difference of pass rates."""
_DIGITS = re.compile(r"(\d+)")


def interval(values: Iterable[Any], levels: Sequence[float] = MEDIAN_AND_90) -> Interval:
    """`values`: one for each level, in the order of the levels."""
    return {
        f"q{round(100 * level):02}": float(value) if math.isfinite(value) else None
        for level, value in zip(levels, values, strict=True)
    }


def unknown_interval(levels: Sequence[float] = MEDIAN_AND_90) -> Interval:
    """An interval of which no quantile is known."""
    return interval([math.nan] * len(levels), levels)


def bare(quantiles: Interval) -> list[float]:
    """The quantiles without their names; inf = never."""
    return [math.inf if value is None else value for value in quantiles.values()]


def amount(value: float | None, form: str = ".4g") -> str:
    """A number, or `never`; no exponent below a million.

    `form`: as `format` takes it, or DIFFERENCE.
    """
    if value is None:
        return "never"
    if form == DIFFERENCE:
        return difference(value)
    if form.endswith("g") and 1e4 <= abs(value) < 1e6:
        return f"{value:,.0f}"
    return format(value, form)


def span(quantiles: Interval, form: str = ".4g") -> str:
    """The 90 % interval in words."""
    return f"{amount(quantiles['q05'], form)} to {amount(quantiles['q95'], form)}"


def with_span(quantiles: Interval, form: str = ".4g") -> str:
    """The median, and the 90 % interval in brackets;
    for tables whose numbers are never negative.
    """
    return (
        f"{amount(quantiles['q50'], form)} "
        f"({amount(quantiles['q05'], form)}–{amount(quantiles['q95'], form)})"
    )


def natural(name: str) -> list[tuple[int, str]]:
    """Key by which run-2 comes before run-10."""
    return [
        (int(token), "") if index % 2 else (0, token)
        for index, token in enumerate(_DIGITS.split(name))
    ]


def format_count(number: int, noun: str) -> str:
    """1 line, 2 lines."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def counted_evaluations(number: int, num_at_start: int) -> str:
    """50 evaluations (1 at step 0): all of them, and how many are only the start of the curve."""
    start = f" ({num_at_start} at step 0)" if num_at_start else ""
    return f"{format_count(number, 'evaluation')}{start}"


def incomplete_points(count: int) -> str:
    """A phrase for evaluations that a curve leaves out because prompts are missing."""
    return (
        f"{format_count(count, 'evaluation')} with less than {100 * MIN_GRADED_SHARE:.0f} % of the "
        "prompts graded"
    )


def left_out(source: Path | str, count: int, noun: str, reason: str) -> str:
    """`noun`: one of those that are left out."""
    return f"{source}: {format_count(count, noun)} left out, {reason}"
