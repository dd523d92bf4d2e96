"""What a stock Grafana asks of a Prometheus data source, and what a stranger might."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from rollcast.curves.evaluations import CurvePoint, Reading
from rollcast.curves.run_forecast import RunBudget
from rollcast.forecaster.api import build_application
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.folder_tail import FolderTail
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.selector import parse_selector
from testkit.forecaster.recorded_run import record

START = 1_700_000_000.0
"""The run costs one device-hour in one hour; its budget ends after two."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    board, metrics = Board(), ForecastMetrics("demo")
    history = History(tmp_path_factory.mktemp("history") / "h.sqlite")
    engine = ForecastEngine(board, history, metrics, {"demo": RunBudget(device_hours=2.0)})
    for run, asymptote in (("demo", 0.85), ("other", 0.6)):
        evaluations = [
            CurvePoint(
                run,
                "d",
                1,
                r.step,
                r.pass_rate,
                r.compute,
                0.01,
                None,
                None,
                START + 3600 * r.compute,
            )
            for r in record(13, asymptote=asymptote)
        ]
        engine.take(Reading(evaluations=evaluations))
    tail = FolderTail("demo", tmp_path_factory.mktemp("run"))
    with TestClient(build_application(board, history, metrics, engine, tail)) as client:
        yield client
    history.close()


def ask(client: TestClient, path: str, **form: object) -> Any:
    answer = client.post(f"/prometheus/api/v1/{path}", data=form)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "success"
    return answer.json()["data"]


def test_the_band_goes_on_beyond_now_and_ends_with_the_budget(client: TestClient) -> None:
    data = ask(
        client,
        "query_range",
        query='rollcast_timeline_pass_rate{run="demo", quantile=~"0.05|0.5"}',
        start=START - 600,
        end=START + 4 * 3600,
        step="10m",
    )
    assert data["resultType"] == "matrix"
    series = {item["metric"]["quantile"]: item["values"] for item in data["result"]}
    assert set(series) == {"0.05", "0.5"}
    times = [at for at, _ in series["0.5"]]
    assert times[0] == START + 600
    assert times[-1] == START + 2 * 3600
    computes = [(at - START) / 3600 for at in times]
    expected = client.get("/api/runs/demo/predict", params={"compute": computes}).json()[
        "predictions"
    ]
    for quantile, key in (("0.05", "q05"), ("0.5", "q50")):
        served = [float(value) for _, value in series[quantile]]
        np.testing.assert_allclose(served, [p["reading"][key] for p in expected], atol=2e-3)


def test_the_instant_query_tells_compute_at_a_time_to_come(client: TestClient) -> None:
    data = ask(
        client,
        "query",
        query='rollcast_timeline_device_hours{run=~"de.*"}',
        time=START + 1.5 * 3600,
    )
    assert [item["metric"]["run"] for item in data["result"]] == ["demo"]
    assert float(data["result"][0]["value"][1]) == pytest.approx(1.5)
    assert (
        ask(client, "query", query="rollcast_timeline_device_hours", time=START - 10)["result"]
        == []
    )
    everything = ask(client, "query", query='{run!="demo"}', time="2023-11-14T23:00:00Z")["result"]
    assert {item["metric"]["run"] for item in everything} == {"other"}
    assert len(everything) == 6


def test_grafana_finds_its_way(client: TestClient) -> None:
    assert ask(client, "query", query="1+1", time=START) == {
        "resultType": "scalar",
        "result": [START, "2"],
    }
    assert ask(client, "labels") == ["__name__", "quantile", "run"]
    assert client.get("/prometheus/api/v1/label/run/values").json()["data"] == ["demo", "other"]
    match = {"match[]": 'rollcast_timeline_device_hours{run="demo"}'}
    assert ask(client, "series", **match) == [
        {"__name__": "rollcast_timeline_device_hours", "run": "demo"}
    ]
    assert "rollcast_timeline_pass_rate" in ask(client, "metadata")
    assert ask(client, "status/buildinfo")["version"]


@pytest.mark.parametrize(
    ("path", "form", "sentence"),
    [
        ("query", {}, "query is missing"),
        ("query", {"query": "rate(x[5m])"}, "only selectors"),
        ("query", {"query": "x + y"}, "only selectors"),
        ("query", {"query": 'x{run="a"'}, "only selectors"),
        ("query", {"query": "x{run=a}"}, "cannot read the label matchers"),
        ("query", {"query": 'x{run="a" job="b"}'}, "a comma is missing"),
        ("query", {"query": 'x{run=~"(a+)+$"}'}, "only text, |, .* and .+ are understood"),
        ("query", {"query": 'x{run=~".*.*.*.*.*a"}'}, "more than 4 wildcards"),
        ("query", {"query": "x" * 5000}, "longer than"),
        ("query", {"query": "up", "time": "soon"}, "is not a time"),
        ("query", {"query": "up", "time": "nan"}, "out of bounds"),
        ("query_range", {"query": "up", "start": 1, "end": 0, "step": 1}, "end is before start"),
        (
            "query_range",
            {"query": "up", "start": 0, "end": 1e9, "step": 1},
            "more than 11000 points",
        ),
        ("query_range", {"query": "up", "start": 0, "end": 1, "step": "-1"}, "out of bounds"),
        ("query_range", {"query": "up", "start": 0, "end": 1, "step": "1q"}, "is not a duration"),
        ("series", {}, "match[] is missing"),
        ("rules", {}, "'rules' is not answered here"),
        ("label/run", {}, "is not answered here"),
    ],
)
def test_what_is_not_understood_is_refused_as_prometheus_does(
    client: TestClient, path: str, form: dict[str, object], sentence: str
) -> None:
    answer = client.post(f"/prometheus/api/v1/{path}", data=form)
    assert answer.status_code == 400
    assert (answer.json()["status"], answer.json()["errorType"]) == ("error", "bad_data")
    assert sentence in answer.json()["error"]


@given(st.text(max_size=200))
def test_any_text_is_a_selector_or_one_sentence(text: str) -> None:
    with contextlib.suppress(ValueError):
        parse_selector(text).matches({"__name__": "x" * 200, "run": "a" * 200})


@given(
    st.lists(
        st.lists(st.sampled_from(["a", "b", ".", ".*", ".+", r"\."]), max_size=3).map("".join),
        min_size=1,
        max_size=3,
    ),
    st.text(alphabet="ab.", max_size=5),
)
def test_regular_expressions_mean_what_they_mean_elsewhere(
    alternatives: list[str], value: str
) -> None:
    pattern = "|".join(alternatives)
    if pattern.count(".*") + pattern.count(".+") > 4:
        return
    quoted = pattern.replace("\\", "\\\\")
    selector = parse_selector(f'x{{run=~"{quoted}"}}')
    assert selector.matches({"__name__": "x", "run": value}) == bool(re.fullmatch(pattern, value))


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "query"), ("DELETE", "series"), ("PATCH", "nowhere")]
)
def test_a_method_that_prometheus_does_not_know_gets_its_kind_of_error(
    client: TestClient, method: str, path: str
) -> None:
    answer = client.request(method, f"/prometheus/api/v1/{path}")
    assert answer.status_code == 405
    assert answer.json() == {
        "status": "error",
        "errorType": "bad_data",
        "error": f"{method} is not answered here; use GET or POST",
    }
    assert set(answer.headers["allow"].replace(" ", "").split(",")) == {"GET", "POST"}
