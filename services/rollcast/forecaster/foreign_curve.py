"""Runs of other frameworks: evaluations told apart in series that keep their value from one to the next.

pass rate   .2 .2 .2 .3 .3 .3 .3 .4 ...      one evaluation where the step (or else the pass rate) changes
compute     10 10 10 25 25 25 25 40 ...      read at the same moment
"""

from __future__ import annotations

import bisect
import math
import time

from rollcast.config.services import CurveQueries
from rollcast.forecaster.evaluations import Evaluation, checked
from rollcast.forecaster.reading import Reading
from rollcast.telemetry.prometheus_reader import Prometheus, Series, SourceAway

MAX_INSTANTS = 10_000
"""Prometheus answers at most 11,000 values of a series."""
MIN_RESOLUTION_SECONDS = 15


def read_curve(prometheus: Prometheus, queries: CurveQueries, now: float | None = None) -> Reading:
    """Every evaluation of one run since its start.

    Raises SourceAway where Prometheus is away, or an expression selects several series.
    """
    span = queries.look_back_hours * 3600
    resolution = max(MIN_RESOLUTION_SECONDS, math.ceil(span / MAX_INSTANTS))
    # Instants are whole multiples of the resolution, so that each look sees the same ones.
    end = (now if now is not None else time.time()) // resolution * resolution
    start = end - span // resolution * resolution

    def ask(expression: str) -> Series | None:
        found = prometheus.query_range(expression, start, end, resolution)
        if len(found) > 1:
            raise SourceAway(f"run {queries.run!r}: {expression} selects {len(found)} series, needs one")
        return found[0] if found else None

    pass_rate, compute = ask(queries.pass_rate), ask(queries.compute)
    steps = None if queries.step is None else ask(queries.step)
    errors = None if queries.standard_error is None else ask(queries.standard_error)
    reading = Reading()
    if pass_rate is None or compute is None or (queries.step is not None and steps is None):
        return reading
    # What was measured before the window began was measured nobody knows when.
    previous = pass_rate.values[0] if steps is None and pass_rate.times[0] == start else None
    for at, value in zip(pass_rate.times, pass_rate.values, strict=True):
        hours = _value_at(compute, at)
        mark = value if steps is None else _value_at(steps, at)
        if hours is None or mark is None or mark == previous:
            continue
        previous = mark
        try:
            step = int(mark) if steps is not None else int(at) if hours > 0 else 0
            error = None if errors is None else _value_at(errors, at)
            reading.evaluations.append(
                checked(Evaluation(queries.run, "", 1, step, value, hours, error, None, None, at))
            )
        except (ValueError, OverflowError):
            reading.skipped["out_of_bounds"] += 1
    return reading


def _value_at(series: Series, at: float) -> float | None:
    """The value at that very instant."""
    place = bisect.bisect_left(series.times, at)
    return series.values[place] if place < len(series.times) and series.times[place] == at else None
