"""Times as people write them, as seconds: durations, and moments that are counted from the first of the run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from rollcast.curves.sheet import Numbers
from rollcast.scaling.law.curve import Array

UNIX_FROM, UNIX_TO = 1.0e9, 4.1e9
"""2001 to 2099: what a clock says, in seconds."""
LONGEST_RUN = 3.2e8
"""Seconds, ten years: larger amounts that lie farther apart are no moments of one run."""
MILLI = 1000.0
_DURATION = re.compile(r"(?:(\d{1,5}) days?,? )?(\d{1,5}):([0-5]\d):([0-5]\d(?:\.\d+)?)")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*|\d{4}-\d{2}-\d{2}|\d{4}/\d{2}/\d{2} \d{2}:\d{2}.*")


def duration(text: str) -> float | None:
    """Seconds of 1:02:03 or `1 day, 2:03:04`; None where it is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return None
    return 86_400.0 * int(found[1] or 0) + 3600.0 * int(found[2]) + 60.0 * int(found[3]) + float(found[4])


def moment(text: str) -> float | None:
    """Unix seconds of an ISO date, of UTC where it names no zone; None where it is none."""
    if not _DATE.fullmatch(text := text.strip()):
        return None
    try:
        read = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def seconds_of(cells: Sequence[Any] | Array, numbers: Numbers, *, may_be_a_clock: bool) -> tuple[Array, str] | None:
    """The column as seconds (n,), nan where a field is empty, and how it was read; None where it holds no times.

    `numbers`: the same column. `may_be_a_clock`: whether plain numbers that could be Unix times are (of a column of
    tokens they are not).
    """
    if np.any(numbers.odd | numbers.per_cent):
        return _written_out(cells)
    known = numbers.values[numbers.given]
    if not may_be_a_clock or known.size == 0:
        return None
    for scale, how in ((1.0, "Unix times"), (MILLI, "Unix times in milliseconds")):
        low, high = known.min() / scale, known.max() / scale
        if low >= UNIX_FROM and high <= UNIX_TO and high - low < LONGEST_RUN:
            return numbers.values / scale, how
    return None


def _written_out(cells: Sequence[Any] | Array) -> tuple[Array, str] | None:
    """Durations or dates, all of one kind."""
    given = ["" if cell is None else str(cell) for cell in cells]
    present = [text for text in given if text.strip()]
    for read, how in ((duration, "durations"), (moment, "dates")):
        if present and read(present[0]) is not None:
            values = [read(text) if text.strip() else math.nan for text in given]
            if None not in values:
                return np.array(values, dtype=float), how
    return None


def is_clock(how: str) -> bool:
    """Whether what `seconds_of` read is moments, which are counted from the first one."""
    return how != "durations"
