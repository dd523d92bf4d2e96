"""One run, told by every source there is: one forecast, to the last digit."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

import rollcast
from rollcast.config.connections import Http
from rollcast.config.curve_sources import CurveFile
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import forecast_source
from rollcast.curves.evaluations import Reading
from rollcast.curves.run_forecast import RunForecast
from rollcast.curves.sources.file import CurveFileReader
from rollcast.curves.sources.metrics_page import MetricsPages
from rollcast.curves.sources.prometheus import PrometheusQueries
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.push_api import PUSH_PATH, push_router
from rollcast.local.ports import free_port
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.telemetry import NUM_KEPT_EVALUATIONS, EvaluationSeries
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, prometheus
from tests.curves.one_run import RUN, as_pushed, from_log, history, of_run_folder, said, write_jsonl

TOKEN = "of trainers"


def page_of(records: list[EvaluationRecord]) -> Exporter:
    """The trainer's own page."""
    assert len(records) <= NUM_KEPT_EVALUATIONS
    exporter = Exporter(RUN)
    series = EvaluationSeries(exporter)
    for record in records:
        series.show(record)
    exporter.set(trainer_metrics.INCARNATION, 2)
    exporter.set(trainer_metrics.INCARNATION_START, 45, incarnation="2")
    return exporter


class Served:
    """A metrics page, as a trainer serves it."""

    def __init__(self, exporter: Exporter) -> None:
        listener = listen("127.0.0.1", 0, setting="port")
        self._server = HttpServer(
            service_routes(exporter.render, lambda: (True, "ok")), listener, Http()
        )
        self.port = self._server.port

    def __enter__(self) -> Served:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


def of_fit_on_the_folder(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    (folder / "format.json").write_text('{"format": 1}')
    write_jsonl(records, folder / "evaluations.jsonl")
    return forecast_source(str(folder), Columns(), RUN, None, None)


def of_fit_on_evaluations_jsonl(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    return forecast_source(
        str(write_jsonl(records, folder / "evaluations.jsonl")), Columns(), RUN, None, None
    )


def of_fit_on_a_csv(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    return forecast_source(str(write_csv(records, folder / "run.csv")), Columns(), RUN, None, None)


def of_a_live_jsonl(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    path = write_jsonl(records, folder / "evaluations.jsonl")
    return from_log(CurveFileReader(CurveFile(run=RUN, path=path)).read())


def of_a_live_csv(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    path = write_csv(records, folder / "run.csv")
    return from_log(CurveFileReader(CurveFile(run=RUN, path=path)).read())


def of_a_scraped_page(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    with Served(page_of(records)) as page:
        pages = MetricsPages((f"http://127.0.0.1:{page.port}/metrics",), Http(), folder / "unused")
        reading = pages.read()
        pages.close()
    return from_log(reading)


class through_prometheus:  # noqa: N801  # a context manager
    """A Prometheus server that scrapes the page."""

    def __init__(self, records: list[EvaluationRecord], folder: Path) -> None:
        self._page = Served(page_of(records))
        self._port = free_port("127.0.0.1")
        self._server = prometheus(folder, self._port, [self._page.port])

    def __enter__(self) -> str:
        self._page.__enter__()
        self._server.__enter__()
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        self._server.__exit__(None, None, None)
        self._page.__exit__()


def until_all_are_there(read: Callable[[], Reading], count: int) -> Reading:
    deadline, found = time.monotonic() + 60, Reading()
    while len(found.evaluations) < count:
        assert time.monotonic() < deadline, "Prometheus did not scrape the page"
        time.sleep(0.3)
        part = read()
        known = {item.key for item in found.evaluations}
        found.evaluations += [item for item in part.evaluations if item.key not in known]
        found.starts |= part.starts
    return found


def of_python_on_the_folder(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    (folder / "format.json").write_text('{"format": 1}')
    write_jsonl(records, folder / "evaluations.jsonl")
    return rollcast.forecast(folder, run=RUN)._run


def of_python_on_columns(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    rows = [as_json(record) for record in records]
    return rollcast.forecast({name: [row[name] for row in rows] for name in rows[0]}, run=RUN)._run


def of_what_is_pushed(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    board = Board()
    history = History(folder / "history.sqlite")
    engine = ForecastEngine(board, history, ForecastMetrics("another"))
    app = FastAPI()
    app.include_router(push_router(engine, board, TOKEN))
    points = [
        {
            "step": record.step,
            "incarnation": record.incarnation,
            "pass_rate": record.pass_rate,
            "standard_error": record.standard_error,
            "compute": record.compute_device_hours,
            "truncation_ratio": record.truncation_ratio,
        }
        for record in records
    ]
    reply = TestClient(app).post(
        PUSH_PATH,
        json={"run": RUN, "unit": "device-hours", "points": points},
        headers={"authorization": f"Bearer {TOKEN}"},
    )
    assert reply.json()["new"] == len(records)
    history.close()
    forecast = board.get(RUN)
    assert forecast is not None
    return forecast


def write_csv(records: list[EvaluationRecord], path: Path) -> Path:
    rows = [as_json(record) for record in records]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


SOURCES = [
    of_fit_on_the_folder,
    of_fit_on_evaluations_jsonl,
    of_fit_on_a_csv,
    of_a_live_jsonl,
    of_a_live_csv,
    of_python_on_the_folder,
    of_python_on_columns,
    of_a_scraped_page,
]


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_sources_that_tell_the_same_give_the_same_forecast_to_the_last_digit(
    source: Callable[[list[EvaluationRecord], Path], RunForecast], elastic: bool, tmp_path: Path
) -> None:
    records = history(elastic=elastic)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    expected = said(of_run_folder(records, tmp_path / "a"))
    assert expected["axis"][0] == ("trained_tokens" if elastic else "device_hours")  # type: ignore[index]
    assert len(expected["evaluations"]) == 10  # type: ignore[arg-type]
    assert said(source(records, tmp_path / "b")) == expected


@NEEDS_PROMETHEUS
def test_a_prometheus_gives_the_page_and_fit_the_same_forecast_to_the_last_digit(
    tmp_path: Path,
) -> None:
    records = history(elastic=True)
    (tmp_path / "a").mkdir()
    expected = said(of_run_folder(records, tmp_path / "a"))
    with through_prometheus(records, tmp_path) as url:
        queries = PrometheusQueries(url)
        reading = until_all_are_there(queries.read, len(records))
        queries.close()
        assert said(from_log(reading)) == expected
        assert said(forecast_source(url, Columns(), RUN, None, None)) == expected


def test_what_is_pushed_is_forecast_as_a_folder_that_tells_no_more(tmp_path: Path) -> None:
    records = as_pushed(history(elastic=False))
    (tmp_path / "a").mkdir()
    expected = said(of_run_folder(records, tmp_path / "a"))
    assert len(expected["evaluations"]) == len(records) - 1  # type: ignore[arg-type]
    assert said(of_what_is_pushed(records, tmp_path)) == expected


def plain_csv(path: Path, rows: list[tuple[object, ...]], header: str) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def rates() -> list[tuple[float, float]]:
    """Compute and pass rate of a run that was first evaluated late."""
    rng = np.random.default_rng(2)
    return [
        (c, 0.2 + 0.6 / (1 + (150 / c) ** 1.7) + 0.005 * float(rng.standard_normal()))
        for c in range(100, 300, 10)
    ]


FOREIGN: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "no steps": ("compute,pass_rate", [(c, r) for c, r in rates()]),
    "no steps, measured start": ("compute,pass_rate", [(0, 0.2), *((c, r) for c, r in rates())]),
    "steps": ("step,compute,pass_rate", [(10 * i, c, r) for i, (c, r) in enumerate(rates())]),
    "parts of epochs": (
        "step,compute,pass_rate",
        [(0.5 * i, c, r) for i, (c, r) in enumerate(rates())],
    ),
    "evaluations of an epoch": (
        "step,compute,pass_rate",
        [(1 + i // 3, c, r) for i, (c, r) in enumerate(rates())],
    ),
    "newest first": (
        "step,compute,pass_rate",
        [(10 * i + 10, c, r) for i, (c, r) in reversed(list(enumerate(rates())))],
    ),
    "a reading that is none": (
        "step,incarnation,compute,pass_rate",
        [(10 * i, 1 + (i > 9), c, "nan" if i == 10 else r) for i, (c, r) in enumerate(rates())],
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_others_gives_one_forecast_by_the_command_and_on_the_page(
    name: str, tmp_path: Path
) -> None:
    header, rows = FOREIGN[name]
    path = plain_csv(tmp_path / "run.csv", rows, header)
    whole = forecast_source(str(path), Columns(), None, None, None)
    on_the_page = from_log(CurveFileReader(CurveFile(run=RUN, path=path)).read())
    assert said(on_the_page) == said(whole)
    assert len(whole.evaluations) == len(rows) - (name == "a reading that is none")
    if name.startswith("no steps"):
        assert whole.axis.start_up == 0.0, "by numbers of rows nobody knows a start-up"
