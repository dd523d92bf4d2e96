"""What is forecast stands in the run folder once for each evaluation, over restarts too."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.run_forecast import RunBudget, RunForecast, forecast_run
from rollcast.forecaster.forecast_log import ForecastLog
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder.files import FORECASTS_SAID
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import ForecastRecord
from testkit.forecaster.recorded_run import record


def forecast_of(count: int) -> RunForecast:
    points = [
        CurvePoint("demo", "d", 1, r.step, r.pass_rate, r.compute, 0.01, None, None, 1e9)
        for r in record()[:count]
    ]
    made = forecast_run(
        RunHistory("demo", points), RunBudget(device_hours=1.2), sequence=1, updated_at=2e9
    )
    assert made is not None
    return made


def test_one_line_for_each_evaluation_that_is_forecast_from(tmp_path: Path) -> None:
    metrics = ForecastMetrics("demo")
    early, late = forecast_of(20), forecast_of(21)
    log = ForecastLog(tmp_path, metrics)
    for said in (None, early, early, late):
        log.note(said)
    ForecastLog(tmp_path, metrics).note(late)  # a forecaster that was started again
    told = list(RecordFile(tmp_path / FORECASTS_SAID, ForecastRecord).read())
    assert [item.step for item in told] == [early.newest.step, late.newest.step]
    assert told[1].end == pytest.approx(late.reading([1.2], (0.05, 0.5, 0.95))[:, 0].tolist())
    assert told[1].asymptote is not None
    assert told[1].asymptote[0] < told[1].asymptote[1] < told[1].asymptote[2]
    assert (told[1].advice, told[1].verdict) == (
        str(late.advice().kind),
        str(late.forecast.verdict.kind),
    )


def test_a_folder_that_refuses_it_is_counted_and_ends_nothing(tmp_path: Path) -> None:
    metrics = ForecastMetrics("demo")
    ForecastLog(tmp_path / "nowhere", metrics).note(forecast_of(20))
    assert (
        'rollcast_forecast_skipped_total{reason="forecast_write",run="demo"} 1.0'
        in metrics.render().decode()
    )
