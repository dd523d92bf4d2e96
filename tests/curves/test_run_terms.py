"""The rest of a run as its own folder states it: its budget, the end by `stop_when`, the last
advice.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

import rollcast
from rollcast.curves.run_forecast import RunBudget, forecast_history
from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.forecast_log import ForecastLog
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder.outcomes import RunResult
from rollcast.runfolder.records import EvaluationRecord, TaskMark, as_json
from testkit.forecaster.recorded_run import Reading, record


def written(
    folder: Path, points: list[Reading], budget: dict[str, float] | None, *marks: TaskMark
) -> Path:
    folder.mkdir()
    (folder / "format.json").write_text('{"format": 1}')
    records = [
        EvaluationRecord(
            point.incarnation,
            point.step,
            point.pass_rate,
            point.compute,
            standard_error=point.standard_error,
        )
        for point in points
    ]
    (folder / "evaluations.jsonl").write_text(
        "".join(json.dumps(as_json(each)) + "\n" for each in records)
    )
    (folder / "tasks.jsonl").write_text("".join(json.dumps(as_json(mark)) + "\n" for mark in marks))
    if budget is not None:
        (folder / "run.json").write_text(json.dumps({"run": folder.name, "budget": budget}))
    return folder


@pytest.mark.parametrize(
    ("budget", "end", "left"),
    [
        ({"steps": 400}, 400 / 290, 11),
        ({"steps": 401}, 401 / 290, 12),
        ({"device_hours": 2.5}, 2.5, None),
        ({"steps": 290}, None, None),
        ({"device_hours": 0.7}, None, None),
        ({"endless": True}, None, None),
        ({"steps": "many"}, None, None),
        (None, None, None),
    ],
)
def test_the_budget_is_that_of_the_run_file(
    tmp_path: Path, budget: dict[str, float] | None, end: float | None, left: int | None
) -> None:
    """Thirty evaluations, ten steps apart, until step 290 at one device-hour.

    Past its budget no rest is known.
    """
    run = forecast_history(history_of_folder(written(tmp_path / "demo", record(), budget), None)[0])
    assert run.end == (None if end is None else pytest.approx(end))
    assert run.evaluations_left == left
    advice = run.advice()
    assert advice.is_assumed is (end is None)
    assert left is None or advice.evaluations < left


def test_a_wait_ends_before_the_last_step_whatever_the_device_hours_say() -> None:
    points = [point for point in record(40) if point.step]
    kept = rollcast.forecast(
        {"step": [p.step for p in points], "pass_rate": [p.pass_rate for p in points]}
    )._run
    for left in range(8):
        budget = RunBudget(steps=390.0 + 10 * left, device_hours=1e3)
        assert budget.evaluations_left(kept.evaluations) == left


ENDED = TaskMark("stopped_early", step=290, reason="saturated on 3 refits in a row")


@pytest.mark.parametrize(
    ("marks", "reason"),
    [
        ((TaskMark("step", step=280), ENDED), ENDED.reason),
        (
            (ENDED, TaskMark("checkpoint", version="1/290"), TaskMark("used", tasks=[3])),
            ENDED.reason,
        ),
        ((ENDED, TaskMark("resumed", version="1/290", incarnation=2)), None),
        ((TaskMark("step", step=280),), None),
        ((), None),
    ],
)
def test_fit_agrees_with_the_rule_that_ended_the_run(
    tmp_path: Path, marks: tuple[TaskMark, ...], reason: str | None
) -> None:
    found = rollcast.forecast(written(tmp_path / "demo", record(), {"steps": 580}, *marks))
    advice = found.advice()
    if reason is None:
        assert "stop_when" not in advice["reason"]
        return
    assert (advice["kind"], advice["reason"]) == ("stop", f"`stop_when` ended the run: {reason}.")
    assert "stop_when" not in found.advice(worth=0.001)["reason"], (
        "another question gets another answer"
    )


def test_the_page_and_a_later_look_at_the_folder_give_the_same_advice(tmp_path: Path) -> None:
    """The service keeps its last advice, also over its own restart, and writes it to the folder."""
    folder = tmp_path / "demo"
    points = record(60, seed=3)
    written(folder, points[:1], {"steps": 1000})
    for count in range(20, 61, 8):
        with closing(History(tmp_path / "h.sqlite")) as history:
            metrics = ForecastMetrics("own")
            board = Board()
            engine = ForecastEngine(board, history, metrics, {"demo": RunBudget(steps=1000.0)})
            lines = written(tmp_path / f"to-{count}", points[:count], None)
            (folder / "evaluations.jsonl").write_text((lines / "evaluations.jsonl").read_text())
            engine.take(RunFolder(folder, "demo").read())
            shown = board.get("demo")
            assert shown is not None
            ForecastLog(folder, metrics).note(shown)
            (kept,) = history.advice()
            assert (kept.kind, kept.num_points) == (str(shown.advice().kind), count)
            later = rollcast.forecast(folder).advice()
            assert (later["kind"], later["evaluations"]) == (
                str(shown.advice().kind),
                shown.advice().evaluations,
            )


def test_the_measured_end_says_that_it_is_a_mean() -> None:
    result = RunResult(0.1, 0.212, None, None, None, None, None, num_evaluations=10)
    assert (
        "the end: pass rate 0.212, the mean of the last 3 evaluations (started at 0.100)"
        in result.sentence()
    )
    alone = RunResult(0.1, 0.212, None, None, None, None, None, num_evaluations=1)
    assert "the end: pass rate 0.212 (started at 0.100)" in alone.sentence()
