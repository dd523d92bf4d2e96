"""The compute of a file's rows as numbers of one unit, whatever was written: times, dates, durations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollcast.config.errors import UserError
from rollcast.curves.curve_row import real_number
from rollcast.curves.elapsed import is_clock, seconds_of
from rollcast.curves.left_out import Tell
from rollcast.curves.sheet import Numbers, Sheet
from rollcast.curves.units import EPOCHS, SAMPLES, SECONDS, STEPS, TOKENS, unit_of
from rollcast.scaling.law.curve import DEVICE_HOURS, Array

_COUNTS = (STEPS, TOKENS, SAMPLES, EPOCHS)
"""Numbers of these may look like a clock's, and are none."""


def in_one_unit(source: str, sheet: Sheet, column: str, devices: float | None, tell: Tell) -> tuple[Sheet, str]:
    """The sheet with numbers in the column of compute, and the unit.

    Moments are counted from the first of their run, which is told. `devices`: the column is of time that passed, and
    that many devices turn it into device-hours. Raises UserError where there is no time in it, or no devices.
    """
    unit = unit_of(column)
    numbers = sheet.numbers(column)
    times = seconds_of(sheet.cells(column), numbers, may_be_a_clock=unit not in _COUNTS)
    if times is None:
        if devices is None:
            return sheet, unit
        seconds = _durations(sheet, column, numbers)
    else:
        seconds, how = times
        unit = SECONDS
        if is_clock(how):
            tell(f"{source}: {column} holds {how}; compute is counted in seconds from the first of the run")
            seconds = _since_first(seconds, sheet.texts("run"))
    if devices is not None:
        if not 0 < devices <= 1e7:
            raise UserError(f"--devices {devices:g}: give the number of devices that the run had, 1 or more")
        unit = DEVICE_HOURS
        seconds = seconds * devices / 3600.0
    return sheet.beside(column, seconds), unit


def _durations(sheet: Sheet, column: str, numbers: Numbers) -> Array:
    for place in np.flatnonzero(numbers.odd):
        if str(cell := sheet.cells(column)[place]).strip():
            real_number(cell, column)
    return numbers.values


def _since_first(seconds: Array, runs: Sequence[str]) -> Array:
    names, run = np.unique(np.array(runs, dtype=object).astype(str), return_inverse=True)
    first = np.full(names.size, np.inf)
    np.fmin.at(first, run, seconds)
    return np.asarray(seconds - first[run])
