"""Runs of other frameworks: single evaluations, from series that keep their value from one to the
next.

pass rate   .2 .2 .2 .3 .3 .3 .3 .4 ...      one evaluation when the step (or else the pass rate)
            changes
compute     10 10 10 25 25 25 25 40 ...      read at the same moment

The first look finds coarsely when the run began, and reads finely from there on. Later looks read
newer values only.
"""

import bisect
import math
from dataclasses import dataclass, replace

from rollcast.config.curve_sources import CurveQueries
from rollcast.curves.evaluations import CurvePoint, Reading, validate_evaluation
from rollcast.telemetry.prometheus_reader import MAX_INSTANTS, Prometheus, Series, SourceAway


@dataclass(frozen=True, slots=True)
class _ReadProgress:
    """How far a curve was read; a look from the beginning leads to the same one."""

    until: float
    """The last instant, Unix seconds."""
    began: float | None = None
    """The first instant at which the run showed a pass rate."""
    mark: float | None = None
    """The step, or else the pass rate, of the newest evaluation."""
    evaluated_at: float = -math.inf
    """The instant of that evaluation."""


class ForeignCurve:
    """One run. Each look continues at the end of the last one."""

    def __init__(self, prometheus: Prometheus, queries: CurveQueries) -> None:
        self._prometheus = prometheus
        self._queries = queries
        self._look_back = queries.look_back_hours * 3600
        # Prometheus usually scrapes every 15 seconds; 200,000 instants are a month of that
        self._resolution = max(15, math.ceil(self._look_back / 200_000))
        self._progress: _ReadProgress | None = None
        """None before the run began."""
        self._looked_until = -math.inf

    def read(self, now_seconds: float) -> Reading:
        """The evaluations since the last look; the first look returns all in the look-back.
        `now_seconds`: Unix time.

        Instants are whole multiples of the resolution, so that each look, of another process too,
        sees the same ones.

        Raises SourceAway if Prometheus cannot be read, or an expression selects several series. The
        next look then starts where this one did.
        """
        reading = Reading()
        # Younger than this, a scrape may not be stored yet: another look would see another value at
        # the same instant
        end = (now_seconds - 2.0) // self._resolution * self._resolution
        if end <= self._looked_until:
            return reading
        progress = self._progress or self._beginning(end)
        while progress is not None and progress.until < end:
            part_end = min(end, progress.until + MAX_INSTANTS * self._resolution)
            progress = self._read_part(progress, part_end, reading)
        self._progress = progress
        self._looked_until = end
        return reading

    def _beginning(self, end: float) -> _ReadProgress | None:
        """The place before the first value in the look-back; None if it has no value."""
        # Closer than the 5 minutes for which Prometheus takes a value to last: every run of as long
        # shows at one instant
        coarse = self._resolution * max(1, 240 // self._resolution)
        start = end - self._look_back // coarse * coarse
        part_start = start
        while part_start <= end:
            part_end = min(end, part_start + (MAX_INSTANTS - 1) * coarse)
            series = self._ask(self._queries.pass_rate, part_start, part_end, coarse)
            if series is not None and series.times:
                first_time = series.times[0]
                if first_time > start:
                    return _ReadProgress(until=first_time - coarse)
                # The time of a value that is older than the look-back is unknown.
                return _ReadProgress(
                    until=start, began=start, mark=None if self._queries.step else series.values[0]
                )
            part_start = part_end + coarse
        return None

    def _read_part(self, progress: _ReadProgress, end: float, reading: Reading) -> _ReadProgress:
        queries = self._queries
        start = progress.until + self._resolution

        def ask(expression: str | None) -> Series | None:
            return (
                None if expression is None else self._ask(expression, start, end, self._resolution)
            )

        pass_rate = ask(queries.pass_rate)
        compute = ask(queries.compute)
        steps = ask(queries.step)
        errors = ask(queries.standard_error)
        truncation = ask(queries.truncation_ratio)
        progress = replace(progress, until=end)
        if pass_rate is None:
            return progress
        if progress.began is None and pass_rate.times:
            progress = replace(progress, began=pass_rate.times[0])
        for instant, value in zip(pass_rate.times, pass_rate.values, strict=True):
            hours = _value_at(compute, instant)
            mark = value if queries.step is None else _value_at(steps, instant)
            is_close = instant - progress.evaluated_at < self._spacing(progress, instant)
            if hours is None or mark is None or mark == progress.mark or is_close:
                continue
            progress = replace(progress, mark=mark, evaluated_at=instant)
            try:
                # Without steps, evaluations are identified by their times. One before any compute
                # is of step 0.
                step = int(instant) if hours > 0 else 0
                if queries.step is not None:
                    step = int(mark)
                error = _value_at(errors, instant)
                cut_off = _value_at(truncation, instant)
                evaluation = CurvePoint(
                    queries.run, "", 1, step, value, hours, error, None, None, instant, cut_off
                )
                reading.evaluations.append(validate_evaluation(evaluation))
            except (ValueError, OverflowError):
                reading.skipped["out_of_bounds"] += 1
        return progress

    def _spacing(self, progress: _ReadProgress, instant: float) -> float:
        """Least seconds between two evaluations."""
        age = instant - (progress.began if progress.began is not None else instant)
        # Evaluations closer together than this part of the run's age are left out, so that a series
        # that changes at every scrape does not fill the log in a day; none is that comes less often
        # than `MAX_INSTANTS` times in the look-back
        return min(age / 700, self._look_back / MAX_INSTANTS)

    def _ask(self, expression: str, start: float, end: float, resolution: float) -> Series | None:
        matching_series = self._prometheus.query_range(expression, start, end, resolution)
        if len(matching_series) > 1:
            raise SourceAway(
                f"run {self._queries.run!r}: {expression} selects {len(matching_series)} series, "
                "needs one"
            )
        return matching_series[0] if matching_series else None


def _value_at(series: Series | None, instant: float) -> float | None:
    """The value at that very instant."""
    if series is None:
        return None
    index = bisect.bisect_left(series.times, instant)
    is_there = index < len(series.times) and series.times[index] == instant
    return series.values[index] if is_there else None
