"""A log by the command, in Python, and on the live page."""

from __future__ import annotations

from pathlib import Path

import rollcast
from rollcast.config.curve_sources import CurveFile
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import forecast_source
from rollcast.curves.run_forecast import RunForecast
from rollcast.curves.sources.file import CurveFiles
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from tests.curves.formats import test_recognised
from tests.curves.one_run import said

RUN = "theirs"
TEXTS = {
    "panel.csv": test_recognised.PANEL,
    "run.csv": test_recognised.RUN_EXPORT,
    "openrlhf.log": test_recognised.OPENRLHF,
    "nemo_rl.log": test_recognised.NEMO,
    "prime_rl.log": test_recognised.PRIME,
    "open_instruct.log": test_recognised.OPEN_INSTRUCT,
    "trl.log": test_recognised.TRL_CONSOLE,
    "nested.jsonl": test_recognised.NESTED,
    "columns.json": test_recognised.COLUMNS,
    "inside.json": test_recognised.INSIDE,
    "tabs.tsv": test_recognised.TABS,
    "german.csv": test_recognised.GERMAN,
    "times.csv": test_recognised.TIMES,
    "accuracy": "".join(
        f"{1_700_000_000_000 + step} {rate} {step}\n" for step, rate in test_recognised.PAIRS
    ),
}


def on_the_page(path: Path, folder: Path) -> RunForecast:
    """What the forecaster makes of the file when it first looks at it."""
    history = History(folder / "history.sqlite")
    board = Board()
    engine = ForecastEngine(board, history, ForecastMetrics(RUN))
    engine.take(CurveFiles((CurveFile(run=RUN, path=path),)).read())
    history.close()
    found = board.get(RUN)
    assert found is not None, "the run is not on the page"
    return found


def assert_one_forecast(path: Path, folder: Path) -> None:
    by_command = forecast_source(str(path), Columns(), None, None, None)
    live = on_the_page(path, folder)
    assert said(live) == said(by_command)
    assert said(rollcast.forecast(path)._run) == said(by_command)
    assert (live.origin, live.unit) == (by_command.origin, by_command.unit)
