"""A forecast against time of day: compute as it was reached, then as it will be at the measured
rate.
"""

from dataclasses import dataclass

import numpy as np

from rollcast.curves.axis import MIN_INTERVALS
from rollcast.curves.run_forecast import QUANTILES, RunForecast
from rollcast.scaling.law.curve import Array


@dataclass(frozen=True, eq=False)
class Timeline:
    """Attributes: times (n,) Unix seconds and compute (n,) device-hours, both rising; rate in
    device-hours a second.
    """

    times: Array
    compute: Array
    rate: float
    end: float
    """Unix seconds at which the budget ends; inf without one."""

    def compute_at(self, times: Array) -> Array:
        """(m,) -> (m,); NaN before the first evaluation and after the end of the budget."""
        beyond = np.maximum(times - self.times[-1], 0.0) * self.rate
        compute = np.interp(times, self.times, self.compute) + beyond
        return np.where((times < self.times[0]) | (times > self.end), np.nan, compute)


def timeline(forecast: RunForecast) -> Timeline | None:
    """None if the evaluations' times give no rate: all of them, or all except one, were read
    together.
    """
    times: list[float] = []
    compute: list[float] = []
    size_of_first = 0
    for item in forecast.evaluations:
        if not times or (item.at > times[-1] and item.compute > compute[-1]):
            times.append(item.at)
            compute.append(item.compute)
        elif item.at == times[-1]:
            compute[-1] = item.compute
        size_of_first += len(times) == 1
    # Evaluations of the first look were made at unknown times before it.
    earliest = 1 if size_of_first > 1 else 0
    first = max(earliest, len(times) - 1 - max(MIN_INTERVALS, len(times) // 3))
    if len(times) - first < 2:
        return None
    rate = (compute[-1] - compute[first]) / (times[-1] - times[first])
    end = np.inf
    if forecast.end is not None:
        end = times[-1] + max(forecast.end - compute[-1], 0.0) / rate
    return Timeline(np.array(times), np.array(compute), float(rate), float(end))


def readings_over_time(forecast: RunForecast, line: Timeline, times: Array) -> Array:
    """Readings (5, m) at `times` (m,) ascending; NaN outside of the timeline, and where nothing is
    forecast.
    """
    compute = line.compute_at(times)
    known_mask = np.isfinite(compute) & (compute > 0)
    verdict = forecast.forecast.verdict
    if verdict.num_missing:
        known_mask &= False
    elif not verdict.has_forecast:
        known_mask &= compute <= forecast.newest.compute
    readings = np.full((len(QUANTILES), times.size), np.nan)
    if np.any(known_mask):
        inside = compute[known_mask]
        # Times at which the forecast is asked; between them it is interpolated
        knots = np.unique(np.quantile(inside, np.linspace(0, 1, min(150, inside.size))))
        values = forecast.reading(knots)
        for row, at_knots in zip(readings, values, strict=True):
            row[known_mask] = np.interp(inside, knots, at_knots)
    return readings
