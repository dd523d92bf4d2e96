"""A log of any format gives one forecast, to the last digit: by the command, in Python, and on the
live page.

Every format: test_every_three_ways.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollcast.cli.main import app
from rollcast.config.curve_sources import CurveFile
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import forecast_source
from rollcast.curves.sources.file import CurveFiles
from rollcast.forecaster.answers import forecast_answer
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from tests.curves.formats import framework_files
from tests.curves.formats.three_ways import RUN, TEXTS, assert_one_forecast, on_the_page
from tests.curves.one_run import said


@pytest.mark.parametrize("name", ["run.wandb", "mlflow.db", "trainer_state.json"])
def test_what_a_framework_wrote_gives_one_forecast(name: str, tmp_path: Path) -> None:
    assert_one_forecast(framework_files.at(framework_files.FILES, name, tmp_path), tmp_path)


@pytest.mark.parametrize("name", ["panel.csv", "prime_rl.log", "nested.jsonl", "times.csv"])
def test_a_log_of_text_gives_one_forecast(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(TEXTS[name])
    assert_one_forecast(path, tmp_path)


def test_a_log_that_grows_is_on_the_page_what_the_command_says_of_it(tmp_path: Path) -> None:
    """A checkpoint's trainer_state.json is replaced at every save; a console log grows line by
    line.
    """
    state = json.loads((framework_files.FILES / "trainer_state.json").read_text())
    states = [
        json.dumps(state | {"log_history": state["log_history"][:count]})
        for count in (30, 45, None)
    ]
    lines = (framework_files.FILES / "verl.log").read_text().splitlines(keepends=True)
    consoles = ["".join(lines[:count]) for count in (len(lines) // 2, len(lines))]
    for path, contents in (
        (tmp_path / "trainer_state.json", states),
        (tmp_path / "verl.log", consoles),
    ):
        board = Board()
        history = History(tmp_path / f"{path.name}.sqlite")
        engine = ForecastEngine(board, history, ForecastMetrics(RUN))
        files = CurveFiles((CurveFile(run=RUN, path=path),))
        for content in contents:
            path.write_text(content)
            engine.take(files.read())
            live = board.get(RUN)
            assert live is not None
            assert said(live) == said(forecast_source(str(path), Columns(), None, None, None))
        history.close()


def test_the_command_and_the_page_count_the_same_evaluations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation before the first step is one of them."""
    path = tmp_path / "run.csv"
    path.write_text(
        "step,accuracy\n" + "".join(f"{10 * n},{0.2 + 0.01 * n:.3f}\n" for n in range(14))
    )
    app(["fit", str(path), "--json"], standalone_mode=False)
    by_command = json.loads(capsys.readouterr().out)["num_points"]
    live = forecast_answer(on_the_page(path, tmp_path))
    assert by_command == live.num_points == 14
