"""Memory of the forecaster: past forecasts, metric grids and the last advice.

The history on disk has them across restarts. A fault of it is counted and logged, and the forecast
goes on.
"""

import sqlite3
from collections.abc import Callable, Mapping

from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.run_forecast import (
    ForecastSummary,
    RunBudget,
    RunForecast,
    forecast_run,
    look_ahead,
    metric_grid,
)
from rollcast.forecaster.history import History, KeptAdvice, KeptForecast
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.surprise import Surprise, hold_to_account
from rollcast.scaling.decisions.advice_answer import EarlierAdvice
from rollcast.scaling.law.curve import Array
from rollcast.telemetry.logging import get_logger

log = get_logger()


class ForecastRecords:
    """The records of all runs, by the name of the curve."""

    def __init__(
        self, history: History, metrics: ForecastMetrics, grids: Mapping[str, tuple[float, ...]]
    ) -> None:
        """`grids`: those that the history has."""
        self._history = history
        self._metrics = metrics
        self._grids = dict(grids)
        self._advice = {advice.name: advice for advice in history.advice()}

    def forget(self, name: str) -> None:
        """What the history has of it is deleted by its caller."""
        self._grids.pop(name, None)
        self._advice.pop(name, None)

    def last_advice(self, name: str, num_points: int) -> EarlierAdvice | None:
        """The advice on the same terms before the newest of `num_points` evaluations."""
        earlier = self._advice.get(name)
        if earlier is None or earlier.num_points > num_points:
            return None
        points_since = num_points - earlier.num_points
        return EarlierAdvice.after(earlier.kind, earlier.evaluations, points_since)

    def keep_advice(self, forecast: RunForecast) -> None:
        advice = forecast.advice()
        advice_record = KeptAdvice(
            forecast.name, len(forecast.evaluations), str(advice.kind), advice.evaluations
        )
        if advice.headline is not None and advice_record != self._advice.get(forecast.name):
            self._advice[forecast.name] = advice_record
            self.try_write(lambda: self._history.keep_advice(advice_record))

    def replay(
        self,
        name: str,
        surviving: tuple[CurvePoint, ...],
        budget: RunBudget,
        new_ids: set[int],
        max_replays: int,
    ) -> None:
        """Make the earlier forecasts of evaluations that arrived together, except for the newest.

        `new_ids`: ids of those that came with this reading.
        """
        point_counts = [
            count for count in range(1, len(surviving)) if id(surviving[count - 1]) in new_ids
        ]
        if max_replays == 0 or not point_counts:
            return
        for num_points in point_counts[:: -(-len(point_counts) // max_replays)]:
            evaluated_at = surviving[num_points - 1].at
            history = RunHistory(name, surviving[:num_points])
            earlier = forecast_run(history, budget, sequence=0, updated_at=evaluated_at)
            if earlier is not None:
                self.keep_forecast(earlier, look_ahead(earlier, self.grid(earlier)), replayed=True)

    def surprise(self, forecast: RunForecast) -> Surprise | None:
        """The newest evaluations, compared with their earlier forecasts."""
        try:
            return hold_to_account(
                forecast.evaluations,
                forecast.axis,
                self.grid(forecast),
                lambda compute: self._history.last_forecast_before(forecast.name, compute),
            )
        except sqlite3.Error as error:
            self._metrics.count_skipped("history_read", 1)
            log.error(
                "the history of forecasts cannot be read; the forecast goes on", error=str(error)
            )
            return None

    def known_grid(self, name: str) -> tuple[float, ...]:
        """Empty before the first forecast of the curve."""
        return self._grids.get(name, ())

    def grid(self, forecast: RunForecast) -> tuple[float, ...]:
        """The fixed computes of the curve's metrics, made by its first forecast."""
        grid = self._grids.get(forecast.name)
        if grid is None:
            grid = self._grids[forecast.name] = metric_grid(forecast)
            self.try_write(lambda: self._history.add_grid(forecast.name, grid))
        return grid

    def keep_forecast(
        self, forecast: RunForecast, outlook: ForecastSummary, *, replayed: bool
    ) -> None:
        kept_forecast = KeptForecast(
            id=0,
            name=forecast.name,
            made_at=forecast.updated_at,
            replayed=replayed,
            num_points=len(forecast.evaluations),
            compute=forecast.newest.compute,
            pass_rate=forecast.newest.pass_rate,
            verdict=str(forecast.forecast.verdict.kind),
            asymptote=_as_tuple(outlook.asymptote),
            headroom=_as_tuple(outlook.headroom),
            end_compute=forecast.end,
            end_reading=_as_tuple(outlook.end),
            band=tuple(tuple(row) for row in outlook.band.tolist()) if outlook.grid else (),
        )
        self.try_write(lambda: self._history.add_forecast(kept_forecast))

    def try_write(self, action: Callable[[], None]) -> None:
        """Calls `action`, which writes to the history."""
        try:
            action()
        except sqlite3.Error as error:
            self._metrics.count_skipped("history_write", 1)
            log.error(
                "the history of forecasts cannot be written; the forecast goes on", error=str(error)
            )


def _as_tuple(values: Array | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values.tolist())
