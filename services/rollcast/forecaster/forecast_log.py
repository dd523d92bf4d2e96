"""The forecasts of the forecaster's own run, appended to a file of the run folder that loggers
read.
"""

from collections import deque
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.amounts import MEDIAN_AND_90, bare
from rollcast.curves.answer import law_of_run
from rollcast.curves.run_forecast import RunForecast
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder.files import FORECASTS_SAID
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import ForecastRecord, as_json
from rollcast.runfolder.writing import append_line
from rollcast.telemetry.logging import get_logger

log = get_logger()


class ForecastLog:
    """One line for each evaluation with a forecast. After a restart no line is written twice."""

    def __init__(self, folder: Path, metrics: ForecastMetrics) -> None:
        self._path = folder / FORECASTS_SAID
        self._metrics = metrics
        newest = deque(RecordFile(self._path, ForecastRecord).read(), maxlen=1)
        self._last_written_key = (
            (newest[0].incarnation, newest[0].step, newest[0].num_evaluations) if newest else None
        )

    def note(self, forecast: RunForecast | None) -> None:
        """A disk that refuses the line is logged and counted; the forecast goes on."""
        if forecast is None:
            return
        newest = forecast.newest
        key = (newest.incarnation, newest.step, len(forecast.evaluations))
        if key == self._last_written_key:
            return
        self._last_written_key = key
        try:
            append_line(self._path, as_json(_record(forecast)))
        except UserError as error:
            self._metrics.count_skipped("forecast_write", 1)
            log.error(
                "the forecast cannot be written to the run folder; the forecaster goes on",
                error=str(error),
            )


def _record(forecast: RunForecast) -> ForecastRecord:
    advice = forecast.advice()
    law = law_of_run(forecast, MEDIAN_AND_90)
    end = None
    if forecast.end is not None and forecast.has_forecast:
        end = forecast.reading([forecast.end], MEDIAN_AND_90)[:, 0].tolist()
    return ForecastRecord(
        incarnation=forecast.newest.incarnation,
        step=forecast.newest.step,
        num_evaluations=len(forecast.evaluations),
        verdict=str(forecast.forecast.verdict.kind),
        asymptote=None if law is None else bare(law.asymptote),
        headroom=None if law is None else bare(law.headroom),
        end=end,
        end_compute=forecast.end,
        advice=str(advice.kind),
        evaluations=advice.evaluations,
        headline=advice.headline,
        reason=advice.reason,
        chance=advice.chance,
        at=forecast.updated_at,
    )
