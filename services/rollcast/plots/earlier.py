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
    """The forecasts of a reading at `end` that were possible earlier, and the present one; empty without any earlier.

    Each is fitted on the evaluations until then alone.
    """
    now = run.forecast
    if not now.verdict.has_forecast or end <= run.newest.compute:
        return []
    at = run.to_fitted([end])
    found = []
    for share in SHARES:
        seen = now.curve.compute <= share * now.curve.compute[-1]
        # A prefix whose fitted part has too few evaluations gave no forecast.
        if np.sum(seen) < MIN_LAW_POINTS:
            continue
        part = now.curve.window(stop=float(now.curve.compute[seen][-1]))
        try:
            if len(fitted_part(part, now.options)) < MIN_LAW_POINTS:
                continue
        except ValueError:  # all of it was before the point from which the user wants the fit
            continue
        then = fit_part(part, now.options)
        if then.verdict.has_forecast:
            found.append(EndForecast(share, tuple(then.predictive(at, QUANTILES)[:, 0].tolist())))
    if not found:
        return []
    return [*found, EndForecast(1.0, tuple(run.reading([end])[:, 0].tolist()))]
