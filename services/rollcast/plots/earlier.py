"""Forecasts of a run's end that were possible earlier, next to the present one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rollcast.curves.run_forecast import QUANTILES
from rollcast.scaling.decisions.fit import fit_part
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS
from rollcast.scaling.posterior.fitting import fitted_part

if TYPE_CHECKING:
    from rollcast.curves.run_forecast import RunForecast

SHARES = (0.25, 0.5, 0.75)
"""Shares of the compute so far after which the earlier forecasts were possible."""


@dataclass(frozen=True)
class EndForecast:
    """A forecast of the reading at the end of the budget.

    Attributes:
        share: of the compute so far after which it was made; 1 = now.
        reading: 5, 25, 50, 75 and 95 % quantiles.
    """

    share: float
    reading: tuple[float, ...]


def forecasts_of_the_end(run: RunForecast, end: float) -> list[EndForecast]:
    """The forecasts of a reading at `end` that were possible earlier, and the present one; empty
    without any earlier.

    Each is fitted on the evaluations until then alone.
    """
    current_forecast = run.forecast
    if not current_forecast.verdict.has_forecast or end <= run.newest.compute:
        return []
    fitted_end = run.to_fitted([end])
    end_forecasts = []
    for share in SHARES:
        is_seen = current_forecast.curve.compute <= share * current_forecast.curve.compute[-1]
        # A prefix whose fitted part has too few evaluations gave no forecast.
        if np.sum(is_seen) < MIN_LAW_POINTS:
            continue
        partial_curve = current_forecast.curve.window(
            stop=float(current_forecast.curve.compute[is_seen][-1])
        )
        try:
            if len(fitted_part(partial_curve, current_forecast.options)) < MIN_LAW_POINTS:
                continue
        except ValueError:  # all of it was before the point from which the user wants the fit
            continue
        earlier_forecast = fit_part(partial_curve, current_forecast.options)
        if earlier_forecast.verdict.has_forecast:
            end_forecasts.append(
                EndForecast(
                    share, tuple(earlier_forecast.predictive(fitted_end, QUANTILES)[:, 0].tolist())
                )
            )
    if not end_forecasts:
        return []
    return [*end_forecasts, EndForecast(1.0, tuple(run.reading([end])[:, 0].tolist()))]
