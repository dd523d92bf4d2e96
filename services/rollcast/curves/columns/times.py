"""Times as people write them, converted into seconds: durations, dates, and what a clock shows."""

import math
import re
from datetime import UTC, datetime

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.amounts import Tell
from rollcast.curves.columns.named_column import NamedColumn
from rollcast.curves.columns.units import COUNTS, SECONDS
from rollcast.curves.sheet import RUN, Column, Sheet
from rollcast.scaling.law.curve import DEVICE_HOURS, Array

SECONDS_PER_HOUR = 3600.0
_DURATION = re.compile(r"(?:(\d{1,5}) days?,? )?(\d{1,5}):([0-5]\d):([0-5]\d(?:\.\d+)?)")
_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*|\d{4}-\d{2}-\d{2}|\d{4}/\d{2}/\d{2} \d{2}:\d{2}.*"
)


def duration(text: str) -> float | None:
    """Seconds of 1:02:03 or `1 day, 2:03:04`; None if the text is not a duration."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        return None
    return (
        86_400.0 * int(match[1] or 0)
        + 3600.0 * int(match[2])
        + 60.0 * int(match[3])
        + float(match[4])
    )


def moment(text: str) -> float | None:
    """Unix seconds of an ISO date, in UTC if it names no zone; None if the text is not a date."""
    if not _DATE.fullmatch(text := text.strip()):
        return None
    try:
        date = datetime.fromisoformat(text.replace("/", "-"))
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def in_one_unit(
    column: NamedColumn, unit: str, devices: float | None, tell: Tell
) -> tuple[Sheet, str]:
    """The sheet with numbers in its column of compute, and their unit.

    Times of a clock are counted from the first one of each run, and `tell` says so. `devices`:
    convert the seconds into device-hours of that many devices. Raises UserError: the column holds
    no seconds.
    """
    numbers = column.numbers
    seconds: Array | None = None
    clock = ""
    if column.is_written_out:
        seconds, clock = _written_out(column.texts)
    elif (
        unit not in COUNTS
        and (clock_unit := _unit_of_a_clock(numbers.values[numbers.is_given])) is not None
    ):
        clock = "Unix times" if clock_unit == 1 else "Unix times in milliseconds"
        seconds = numbers.values / clock_unit
    if seconds is None and devices is None:
        return column.sheet, unit
    if seconds is not None:
        if clock:
            tell(
                f"{column.name} holds {clock}; compute is counted in seconds from the first of the "
                "run"
            )
            seconds = _since_first(seconds, NamedColumn(RUN, column.sheet).texts)
    else:
        if column.complaint:
            raise UserError(column.complaint)
        seconds = numbers.values
    unit = SECONDS
    if devices is not None:
        seconds = seconds * devices / SECONDS_PER_HOUR
        unit = DEVICE_HOURS
    rows = np.flatnonzero(~np.isnan(seconds))
    return column.sheet | {column.name: Column(rows, seconds[rows].tolist())}, unit


def _unit_of_a_clock(clock_values: Array) -> float | None:
    """1 if these are Unix seconds, 1000 if they are Unix milliseconds; None if they are not times
    of a clock.
    """
    # 1000.0: milliseconds in a second.
    for unit in (1.0, 1000.0):
        seconds = clock_values / unit
        if (
            seconds.size
            # 2001: smaller numbers are durations, not times of a clock
            and seconds.min() >= 1.0e9
            # 2099
            and seconds.max() <= 4.1e9
            # Ten years: numbers that are farther apart are not times of one run
            and seconds.max() - seconds.min() < 3.2e8
        ):
            return unit
    return None


def _written_out(texts: list[str]) -> tuple[Array | None, str]:
    """(n,) seconds of durations or dates, nan for an empty text, and the kind of clock; None: they
    are neither.
    """
    nonempty_texts = [text for text in texts if text.strip()]
    for parse_time, clock in ((duration, ""), (moment, "dates")):
        seconds = [parse_time(text) for text in nonempty_texts]
        if nonempty_texts and None not in seconds:
            waiting = iter(seconds)
            return np.array(
                [next(waiting) if text.strip() else math.nan for text in texts], dtype=float
            ), clock
    return None, ""


def _since_first(seconds: Array, runs: list[str]) -> Array:
    """(n,) seconds since the first one of the same run."""
    first: dict[str, float] = {}
    for run, second in zip(runs, seconds.tolist(), strict=True):
        if not math.isnan(second):
            first[run] = min(second, first.get(run, second))
    return np.array(
        [
            second - first.get(run, second)
            for run, second in zip(runs, seconds.tolist(), strict=True)
        ]
    )
