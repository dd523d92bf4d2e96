"""Evaluations that lack prompts: below nine tenths they are no part of a curve, and every reader
says so.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.config.curve_sources import CurveFile
from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.evaluations import CurvePoint, EvaluationLog, Reading
from rollcast.curves.run_forecast import RunBudget
from rollcast.curves.sources.file import CurveFileReader
from rollcast.curves.sources.metrics_page import interpret
from rollcast.curves.sources.run_folder import RunFolder, history_of_folder
from rollcast.forecaster.answers import forecast_answer, points_answer
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.runfolder.records import EvaluationRecord
from rollcast.runfolder.survival import graded_share, is_complete
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.prometheus_reader import parse_page
from rollcast.trainer.control.telemetry import EvaluationSeries
from testkit.forecaster.recorded_run import record
from testkit.formats.history import read_history

ASKED = 40
SPOILT = 7
"""The evaluation that lost prompts, and reads far too much."""
FEW = 9
"""Evaluations where each is forecast from."""


def records(graded: int = ASKED, count: int = 16) -> list[EvaluationRecord]:
    """A run whose eighth evaluation lost all prompts but `graded`."""
    return [
        EvaluationRecord(
            incarnation=1,
            step=r.step,
            pass_rate=0.99 if place == SPOILT else r.pass_rate,
            compute_device_hours=r.compute,
            dataset="d",
            standard_error=0.08 if place == SPOILT else 0.01,
            num_prompts=graded if place == SPOILT else ASKED,
            asked_prompts=ASKED,
            missing_prompts=ASKED - graded if place == SPOILT else 0,
            given_up_prompts=ASKED - graded if place == SPOILT else 0,
            started_from=0,
            at=1e9 + r.step,
        )
        for place, r in enumerate(record()[:count])
    ]


def written(folder: Path, lines: list[EvaluationRecord], *without: str) -> Path:
    """The run's folder, its records without these fields."""
    folder.mkdir(exist_ok=True)
    plain = [
        {name: value for name, value in asdict(line).items() if name not in without}
        for line in lines
    ]
    (folder / "format.json").write_text('{"format": 1}')
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in plain))
    return folder


def from_folder(path: Path, lines: list[EvaluationRecord]) -> Reading:
    return RunFolder(written(path / "demo", lines), "demo").read()


def from_file(path: Path, lines: list[EvaluationRecord]) -> Reading:
    """A copy of evaluations.jsonl, read as the file of any framework."""
    file = written(path / "copy", lines) / "evaluations.jsonl"
    settings = CurveFile(
        path=file, run="demo", pass_rate="pass_rate", compute="compute_device_hours"
    )
    return replace_dataset(CurveFileReader(settings).read())


def replace_dataset(reading: Reading) -> Reading:
    reading.evaluations = [replace(item, dataset="d") for item in reading.evaluations]
    return reading


def from_page(path: Path, lines: list[EvaluationRecord]) -> Reading:
    """The trainer's page, as it is scraped directly and as Prometheus keeps it."""
    exporter = Exporter("demo")
    series = EvaluationSeries(exporter)
    for line in lines:
        series.show(line)
    return interpret(parse_page(exporter.render().decode()), at=1e9)


Source = Callable[[Path, list[EvaluationRecord]], Reading]
sources = pytest.mark.parametrize("source", [from_folder, from_page, from_file])


class Service:
    """What the forecaster is made of, without its port."""

    def __init__(self, path: Path) -> None:
        self.board, self.history, self.metrics = Board(), History(path), ForecastMetrics("demo")
        self.engine = ForecastEngine(
            self.board, self.history, self.metrics, {"demo": RunBudget(steps=300)}
        )

    def exported(self) -> float:
        page = parse_page(self.metrics.render().decode())
        return next(
            item.value for item in page if item.name == "rollcast_forecast_incomplete_points"
        )


@settings(max_examples=25)
@given(st.integers(0, 400), st.integers(0, 400))
def test_the_share_is_that_of_the_prompts_asked(graded: int, asked: int) -> None:
    share = graded_share(graded, asked)
    if graded > asked or asked == 0:
        assert share is None
        assert is_complete(share), "nothing is known to be missing"
    else:
        assert is_complete(share) == (10 * graded >= 9 * asked)


@settings(max_examples=25)
@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=20))
def test_every_evaluation_of_a_log_is_kept_lost_or_incomplete(shares: list[float | None]) -> None:
    log = EvaluationLog()
    for place, share in enumerate(shares):
        step, incarnation = 10 * (place // 2), 1 + place % 2
        log.add(
            CurvePoint(
                "r",
                "d",
                incarnation,
                step,
                0.5,
                place + 1.0,
                None,
                None,
                None,
                0.0,
                graded_share=share,
            )
        )
    found = log.sorted_out()
    assert len(found.curve_points) + found.num_lost + found.num_incomplete == len(shares)
    assert all(item.graded_share is None or item.graded_share >= 0.9 for item in found.curve_points)
    assert log.sorted_out().curve_points == found.curve_points


@pytest.mark.parametrize(
    ("source", "graded"), [(from_folder, 1), (from_folder, 35), (from_page, 20), (from_file, 20)]
)
def test_a_point_that_lacks_prompts_is_left_out_and_the_forecaster_says_so(
    tmp_path: Path, source: Source, graded: int, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(tmp_path / "h.sqlite")
    service.engine.take(source(tmp_path, records(graded, FEW)))
    others = Service(tmp_path / "others.sqlite")
    complete = [line for place, line in enumerate(records(count=FEW)) if place != SPOILT]
    others.engine.take(source(tmp_path, complete))
    found, expected = service.board.get("demo"), others.board.get("demo")
    assert found is not None
    assert expected is not None
    assert found.forecast.curve.pass_rate.tolist() == expected.forecast.curve.pass_rate.tolist()
    assert found.forecast.asymptote().tolist() == expected.forecast.asymptote().tolist()
    assert (found.num_incomplete, expected.num_incomplete) == (1, 0)
    assert (service.exported(), others.exported()) == (1.0, 0.0)
    assert forecast_answer(found).num_incomplete == points_answer(found).num_incomplete == 1
    told = capsys.readouterr()
    assert f"graded_share={graded / ASKED:g}" in (told.out + told.err).replace(" ", "")


@sources
def test_a_point_with_nine_tenths_counts_with_the_error_of_its_own_prompts(
    tmp_path: Path, source: Source
) -> None:
    service = Service(tmp_path / "h.sqlite")
    service.engine.take(source(tmp_path, records(36, FEW)))
    found = service.board.get("demo")
    assert found is not None
    assert found.num_incomplete == 0
    errors = found.forecast.curve.standard_error
    assert errors is not None
    assert errors[found.forecast.curve.pass_rate == 0.99].tolist() == [0.08]


def test_a_restarted_forecaster_still_leaves_it_out(tmp_path: Path) -> None:
    """Also one whose file an older release made, which knows nothing of prompts."""
    path = tmp_path / "h.sqlite"
    service = Service(path)
    service.engine.take(from_folder(tmp_path, records(20, FEW)))
    service.history.close()
    assert Service(path).exported() == 1.0
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE evaluations DROP COLUMN graded_share")
    assert Service(path).exported() == 0.0


@pytest.mark.parametrize(
    "without", [(), ("asked_prompts",), ("missing_prompts", "given_up_prompts")]
)
def test_a_run_folder_tells_it_with_either_count(tmp_path: Path, without: tuple[str, ...]) -> None:
    history, malformed, lost = history_of_folder(
        written(tmp_path / "demo", records(20), *without), None
    )
    assert (len(history.evaluations), history.num_incomplete, malformed, lost) == (15, 1, 0, 0)


@pytest.mark.parametrize("without", [(), ("asked_prompts",), ("missing_prompts",)])
def test_a_copy_of_the_file_tells_it_too(tmp_path: Path, without: tuple[str, ...]) -> None:
    folder = written(tmp_path / "copy", records(20), *without)
    (folder / "evaluations.jsonl").rename(folder / "curve.jsonl")
    history = read_history(str(folder / "curve.jsonl"), Columns(), None)
    assert (len(history.evaluations), history.num_incomplete) == (15, 1)
    assert 0.99 not in [item.pass_rate for item in history.evaluations]


def test_a_record_that_counts_no_prompts_is_complete(tmp_path: Path) -> None:
    counts = ("num_prompts", "asked_prompts", "missing_prompts", "given_up_prompts")
    history, _, _ = history_of_folder(written(tmp_path / "demo", records(1), *counts), None)
    assert (len(history.evaluations), history.num_incomplete) == (16, 0)


def test_a_run_with_nothing_complete_is_told_why_it_has_no_curve(tmp_path: Path) -> None:
    lines = [replace(line, num_prompts=3) for line in records()]
    with pytest.raises(
        UserError, match="apart from 16 evaluations with less than 90 % of the prompts graded"
    ):
        history_of_folder(written(tmp_path / "demo", lines), None)
