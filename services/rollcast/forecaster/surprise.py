"""A new reading, compared with the forecast that was made of it half-way there.

Half-way is half of its compute on the axis of the fit, from the first step on: the start-up of the
engines does not count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rollcast.curves.axis import ComputeAxis
from rollcast.curves.evaluations import CurvePoint
from rollcast.forecaster.history import KeptForecast


@dataclass(frozen=True)
class Surprise:
    earlier: tuple[float, ...]
    """The earlier forecast of the newest evaluation's reading: 5, 25, 50, 75 and 95 %."""
    num_missed: int
    """Newest evaluations in a row outside the 90 % interval of their forecast; counted up to 10."""


def hold_to_account(
    evaluations: Sequence[CurvePoint],
    axis: ComputeAxis,
    grid: Sequence[float],
    made_before: Callable[[float], KeptForecast | None],
) -> Surprise | None:
    """Compare the newest `evaluations` (in order of compute) with the forecasts that had been made
    for them.

    `axis` is that of the fit, `grid` the run's grid of computes; `made_before` gives the last
    forecast at or below a compute. None if there was no forecast of the newest evaluation.
    """
    earlier: tuple[float, ...] | None = None
    num_missed = 0
    # Evaluations that are looked back at
    for item in reversed(evaluations[-10:]):
        forecast_readings = _interpolate_forecast(item.compute, axis, grid, made_before)
        earlier = earlier or forecast_readings
        if (
            forecast_readings is None
            or forecast_readings[0] <= item.pass_rate <= forecast_readings[-1]
        ):
            break
        num_missed += 1
    return None if earlier is None else Surprise(earlier, num_missed)


def _interpolate_forecast(
    compute: float,
    axis: ComputeAxis,
    grid: Sequence[float],
    made_before: Callable[[float], KeptForecast | None],
) -> tuple[float, ...] | None:
    """Readings forecast for `compute`, interpolated on the grid; None outside of it."""
    if not grid or not grid[0] <= compute <= grid[-1]:
        return None
    # A surprise is measured against the forecast that was made at half of the compute
    past = made_before(float(axis.to_device_hours(axis.to_fitted(np.array([compute])) * 0.5)[0]))
    if past is None or not past.band:
        return None
    return tuple(float(np.interp(np.log(compute), np.log(grid), row)) for row in past.band)
