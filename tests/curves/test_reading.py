"""What is read from pages and files, hostile ones too."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.curves.sources.metrics_page import interpret
from rollcast.curves.sources.run_folder import RunFolder
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.prometheus_reader import Prometheus, Sample, SourceAway, parse_page
from testkit.forecaster.recorded_run import TrainerPage, record


def test_a_trainers_page_gives_back_what_it_shows() -> None:
    page = TrainerPage()
    for reading in record(20):
        page.show(reading)
    page.exporter.add(trainer_metrics.GROUP_SIGNALS, 3.0, signal="truncated")
    for role, hours in (("generator", 2.0), ("trainer", 1.0)):
        page.exporter.add(trainer_metrics.COMPUTE_SPENT, hours, role=role)
    seen = interpret(parse_page(page.exporter.render().decode()), at=5.0)
    page._server._listener.close()
    expected = record(20)[-16:]
    assert [
        (e.step, e.pass_rate, e.compute, e.standard_error)
        for e in sorted(seen.evaluations, key=lambda e: e.step)
    ] == [(r.step, r.pass_rate, r.compute, r.standard_error) for r in expected]
    assert {e.step: e.truncation_ratio for e in seen.evaluations} == {
        r.step: r.truncation_ratio for r in expected
    }
    status = seen.status["demo"]
    assert (status.step, status.max_staleness) == (190, 8)
    assert status.staleness[0.0] == 100
    assert status.group_signals == {"truncated": 3.0}
    assert status.spent == {"generator": 2.0, "trainer": 1.0}
    assert not seen.skipped


def test_what_is_incomplete_or_impossible_is_counted() -> None:
    labels = {"run": "demo", "dataset": "d", "incarnation": "1", "step": "10"}
    samples = [
        Sample("rollcast_eval_pass_rate", labels, 0.5),
        Sample("rollcast_eval_pass_rate", {**labels, "step": "20"}, 1.5),
        Sample("rollcast_eval_compute_device_hours", {**labels, "step": "20"}, 1.0),
        Sample("rollcast_eval_pass_rate", {**labels, "step": "x"}, 0.5),
        Sample("rollcast_eval_compute_device_hours", {**labels, "step": "x"}, 1.0),
        Sample("rollcast_incarnation_start_step", {"run": "demo", "incarnation": "2"}, 25.0),
        Sample("rollcast_incarnation_start_step", {"run": "demo", "incarnation": "?"}, 25.0),
        Sample("up", {"job": "x"}, 1.0),
    ]
    reading = interpret(samples, at=0.0)
    assert reading.evaluations == []
    assert reading.skipped == {"incomplete": 1, "out_of_bounds": 2, "bad_label": 1}
    assert reading.starts == {"demo": {2: 25}}


@settings(max_examples=25)
@given(st.text(max_size=300))
def test_any_text_is_samples_or_one_sentence(text: str) -> None:
    with contextlib.suppress(SourceAway):
        interpret(parse_page(text), at=0.0)


def test_a_source_that_is_no_prometheus_is_away() -> None:
    with TrainerPage() as page:
        for address, sentence in (
            (f"http://127.0.0.1:{page.port}", "status 404"),
            ("http://127.0.0.1:9", "cannot be read"),
            ("no address", "cannot be read"),
        ):
            prometheus = Prometheus(address)
            with pytest.raises(SourceAway, match=sentence):
                prometheus.query("up")
            prometheus.close()


class OddServer(BaseHTTPRequestHandler):
    """Answers every query with a result that is given with the class."""

    result: ClassVar[object] = None

    def do_POST(self) -> None:
        body = json.dumps(
            {"status": "success", "data": {"resultType": "vector", "result": self.result}}
        ).encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ({}, "a result that is no list of series"),
        ([1], "a result that is no list of series"),
        ([{"value": [0, "1"]}], "a series without labels"),
        ([{"metric": {"step": 10}, "value": [0, "1"]}], "some that are no text"),
        ([{"metric": {"step": "10"}}], "a sample that is no number"),
        ([{"metric": {"step": "10"}, "value": [0, "much"]}], "a sample that is no number"),
    ],
)
def test_an_answer_that_is_no_prometheus_tells_so_in_one_sentence(
    result: object, sentence: str
) -> None:
    server = HTTPServer(("127.0.0.1", 0), type("Answers", (OddServer,), {"result": result}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    prometheus = Prometheus(f"http://127.0.0.1:{server.server_port}")
    try:
        with pytest.raises(SourceAway, match=sentence):
            prometheus.query("up")
    finally:
        prometheus.close()
        server.shutdown()
        thread.join(10.0)
        server.server_close()


def line(step: int, **more: object) -> str:
    record = {
        "dataset": "d",
        "incarnation": 1,
        "step": step,
        "pass_rate": 0.5,
        "compute_device_hours": step / 10,
    }
    return json.dumps(record | more) + "\n"


def test_the_folder_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    source = RunFolder(tmp_path, "demo")
    assert source.read().evaluations == []
    path.write_text(line(0) + line(10) + line(20)[:12])
    assert [e.step for e in source.read().evaluations] == [0, 10]
    path.write_text(line(0) + line(10) + line(20) + "not json\n[1]\n" + line(30, pass_rate=7))
    reading = source.read()
    assert [(e.run, e.step, e.standard_error) for e in reading.evaluations] == [("demo", 20, None)]
    assert reading.skipped == {"bad_line": 3}
    path.write_text(line(5))
    assert [e.step for e in source.read().evaluations] == [5]
