"""Each environment's readings are forecast under a name of their own, and take no part in the run's
own curve.
"""

from __future__ import annotations

from pathlib import Path

from rollcast.curves.answer import law_of_run
from rollcast.curves.evaluations import CurvePoint, Reading
from rollcast.curves.run_forecast import RunBudget
from rollcast.curves.sources.run_folder import history_of_folder
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder import files
from rollcast.runfolder.folder import mark_format
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.recorded_run import record

ASYMPTOTES = {"worlds": 0.75, "environment:search": 0.55, "environment:shell": 0.95}


def test_every_environment_has_a_forecast(tmp_path: Path) -> None:
    board = Board()
    history = History(tmp_path / "h.sqlite")
    engine = ForecastEngine(
        board, history, ForecastMetrics("demo"), {"demo": RunBudget(device_hours=2.0)}
    )
    points = [
        CurvePoint(
            "demo",
            dataset,
            1,
            item.step,
            item.pass_rate,
            item.compute,
            0.01,
            None,
            None,
            1_700_000_000.0,
        )
        for dataset, asymptote in ASYMPTOTES.items()
        for item in record(12, asymptote=asymptote)
    ]
    engine.take(Reading(evaluations=points))
    history.close()
    assert [item.name for item in board.all()] == [
        "demo",
        "demo:environment:search",
        "demo:environment:shell",
    ]
    for dataset, asymptote in ASYMPTOTES.items():
        item = board.get("demo" if dataset == "worlds" else f"demo:{dataset}")
        assert item is not None
        law = law_of_run(item)
        assert law is not None, dataset
        low, high = law.asymptote["q05"], law.asymptote["q95"]
        assert low is not None
        assert high is not None
        assert low < asymptote < high, dataset


def test_the_runs_own_curve_is_without_them(tmp_path: Path) -> None:
    mark_format(tmp_path)
    for dataset, rate in (("worlds", 0.5), ("environment:search", 0.2), ("environment:shell", 0.8)):
        for step in (0, 10):
            append_line(
                tmp_path / files.EVALUATIONS,
                as_json(EvaluationRecord(1, step, rate, step / 10, dataset=dataset)),
            )
    history, _, _ = history_of_folder(tmp_path, None)
    assert [point.pass_rate for point in history.evaluations] == [0.5, 0.5]
