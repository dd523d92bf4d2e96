"""The advice on a broken run names the step of its peak, the kept checkpoint before it, and the
command.
"""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from rollcast.curves.run_forecast import RunForecast, forecast_history
from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.local.forecast_reading import forecast_here
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints
from rollcast.runfolder.records import EvaluationRecord, as_json

PEAK = 200
START_UP = 3.0
"""Device-hours."""


def broken(folder: Path, *kept: int, is_of_up: bool = True) -> Path:
    """A run of 400 steps that rises until step 200 and falls; its engines took three device-hours
    to start.
    """
    folder.mkdir()
    (folder / "format.json").write_text('{"format": 1}')
    noise = np.random.default_rng(0).normal(0, 0.004, 41)
    records = [
        EvaluationRecord(
            1,
            step,
            float(0.7 - abs(step - PEAK) / 400 + noise[number]),
            step / 100 + (START_UP if step else 0.0),
            standard_error=0.004,
            start_up_device_hours=START_UP if step else 0.0,
        )
        for number, step in enumerate(range(0, 401, 10))
    ]
    (folder / "evaluations.jsonl").write_text(
        "".join(json.dumps(as_json(one)) + "\n" for one in records)
    )
    for step in kept:
        (folder / "checkpoints" / f"1.{step}").mkdir(parents=True)
        (folder / "checkpoints" / f"1.{step}" / "controller.json").write_text("{}")
    if is_of_up:
        (folder / "up.json").write_text("{}")
    return folder


def forecast(folder: Path) -> RunForecast:
    found = forecast_history(history_of_folder(folder, None)[0])
    assert found.forecast.verdict.kind == "broken"
    return found


def test_the_sentence_names_the_step_what_is_kept_and_the_command(tmp_path: Path) -> None:
    folder = broken(tmp_path / "r", 100, 150, 350, 400)
    advice = forecast(folder).advice()
    assert advice.kind == "stop"
    peak = int(advice.change.partition("near step ")[2].split(" ")[0])
    assert peak == pytest.approx(PEAK, abs=30)
    assert advice.change == (
        "Once the cause is found, go back to the checkpoint of step 150, with a chance of over "
        f"99 % the best one before the fall from that peak, near step {peak} (kept are those of "
        f"steps 100, 150, 350, 400): rollcast up --config {folder}/up.json --resume --step 150"
    )
    assert advice.change == forecast(folder).advice(budget=8.0).change
    shown = forecast_here(forecast(folder), None).advice
    assert shown is not None
    assert shown.sentence() == f"stop: the run is broken. {advice.change}"


def test_one_a_little_after_the_peak_is_better_than_one_long_before(tmp_path: Path) -> None:
    change = forecast(broken(tmp_path / "r", 20, 220, 390, 400)).advice().change
    assert "go back to the checkpoint of step 220, with a chance of over 99 % the best" in change


def test_one_peak_is_named_in_the_device_hours_of_the_run(tmp_path: Path) -> None:
    run = forecast(broken(tmp_path / "r", 100))
    (reason, advised) = (run.forecast.verdict.reason, run.advice().reason)
    near = advised.partition(" near ")[2].split(" ")[0]
    assert float(near) == pytest.approx(PEAK / 100 + START_UP, abs=0.4)
    assert f"near {near} device-hours" in reason
    assert "Go back" not in reason, "the advice says to which checkpoint"


@pytest.mark.parametrize(
    ("kept", "what"), [((350, 400), "kept are those of steps 350, 400"), ((), "none is kept")]
)
def test_where_no_checkpoint_before_the_peak_is_kept_that_is_said(
    tmp_path: Path, kept: tuple[int, ...], what: str
) -> None:
    change = forecast(broken(tmp_path / "r", *kept)).advice().change
    assert change.startswith("No checkpoint from before that peak, near step ")
    assert f"is there ({what}): only another run can go back" in change


def test_a_run_that_up_did_not_start_is_gone_back_to_by_another_run(tmp_path: Path) -> None:
    change = forecast(broken(tmp_path / "r", 100, is_of_up=False)).advice().change
    assert change.endswith(
        ": set model.from_step to 100 in another run, whose model.from_run is this one"
    )


def test_the_page_says_the_same(tmp_path: Path) -> None:
    folder = broken(tmp_path / "r", 100, 350)
    board = Board()
    with closing(History(tmp_path / "h.sqlite")) as history:
        kept = {"r": partial(KeptCheckpoints.find, folder, None)}
        engine = ForecastEngine(board, history, ForecastMetrics("own"), checkpoint_readers=kept)
        engine.take(RunFolder(folder, "r").read())
    shown = board.get("r")
    assert shown is not None
    assert shown.advice().change == forecast(folder).advice().change
    assert shown.forecast.verdict.reason == forecast(folder).forecast.verdict.reason
