"""Readings held against what had been forecast for them, reckoned a second time from the whole
history.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollcast.curves.evaluations import CurvePoint, Reading
from rollcast.curves.run_forecast import QUANTILES, RunBudget
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from testkit.forecaster.recorded_run import record

BUDGET = RunBudget(device_hours=1.2)
NUM_POINTS = 20
FALL_FROM = 14


def evaluations(fall: float) -> list[CurvePoint]:
    """A run that follows its law; from evaluation 14 on its readings lie `fall` lower."""
    points = [
        replace(r, pass_rate=max(r.pass_rate - fall * (i >= FALL_FROM), 0.0))
        for i, r in enumerate(record(NUM_POINTS))
    ]
    return [
        CurvePoint(
            "demo", "d", 1, r.step, r.pass_rate, r.compute, 0.01, None, None, 1e9 + 3600 * r.compute
        )
        for r in points
    ]


def exported(metrics: ForecastMetrics, name: str) -> dict[str, float]:
    lines = re.findall(
        rf'^{name}\{{.*?(?:quantile="([^"]*)")?.*?\}} (\S+)$',
        metrics.render().decode(),
        re.MULTILINE,
    )
    return {quantile: float(value) for quantile, value in lines}


@pytest.mark.parametrize(
    ("fall", "at_least", "at_most"), [(0.0, 0, 0), (0.3, NUM_POINTS - FALL_FROM, 8)]
)
def test_readings_outside_of_their_forecast_are_counted(
    fall: float, at_least: int, at_most: int, tmp_path: Path
) -> None:
    history, metrics = History(tmp_path / "h.sqlite"), ForecastMetrics("demo")
    engine = ForecastEngine(Board(), history, metrics, {"demo": BUDGET})
    points = evaluations(fall)
    for point in points:
        engine.take(Reading(evaluations=[point]))
    said = exported(metrics, "rollcast_forecast_earlier_pass_rate")

    def forecast_for(point: CurvePoint) -> np.ndarray:
        known = [past for past in history.forecasts("demo") if past.compute <= point.compute / 2]
        made = max(known, key=lambda past: past.compute)
        return np.array(
            [
                np.interp(np.log(point.compute), np.log(engine.grid("demo")), row)
                for row in made.band
            ]
        )

    np.testing.assert_allclose(
        [said[f"{quantile:g}"] for quantile in QUANTILES], forecast_for(points[-1]), atol=1e-9
    )
    outside = [not forecast_for(p)[0] <= p.pass_rate <= forecast_for(p)[-1] for p in points[10:]]
    missed = 0
    while outside and outside.pop():
        missed += 1
    assert at_least <= missed <= at_most
    assert exported(metrics, "rollcast_forecast_missed_readings") == {"": missed}

    again = ForecastMetrics("demo")
    ForecastEngine(Board(), history, again, {"demo": BUDGET})
    assert exported(again, "rollcast_forecast_missed_readings") == {"": missed}
    assert exported(again, "rollcast_forecast_earlier_pass_rate") == said
    history.close()


def test_nothing_is_said_where_nothing_had_been_forecast(tmp_path: Path) -> None:
    """Below five evaluations after the start no reading is forecast, so none is missed."""
    history, metrics = History(tmp_path / "h.sqlite"), ForecastMetrics("demo")
    engine = ForecastEngine(Board(), history, metrics, {"demo": BUDGET})
    for point in evaluations(0.0)[:5]:
        engine.take(Reading(evaluations=[point]))
    assert exported(metrics, "rollcast_forecast_verdict")
    assert not exported(metrics, "rollcast_forecast_missed_readings")
    history.close()
