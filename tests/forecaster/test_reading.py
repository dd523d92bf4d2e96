"""What is read from pages and files, hostile ones too."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcast.curves.reading import interpret
from rollcast.curves.run_folder import RunFolder
from rollcast.runfolder import growing_file
from rollcast.telemetry.prometheus_reader import Prometheus, Sample, SourceAway, parse_page
from testkit.forecaster.recorded_run import TrainerPage, record


def test_a_trainers_page_gives_back_what_it_shows() -> None:
    page = TrainerPage()
    for reading in record(20):
        page.show(reading)
    seen = interpret(parse_page(page.exporter.render().decode()), at=5.0)
    page._server._listener.close()
    expected = record(20)[-16:]
    assert [
        (e.step, e.pass_rate, e.compute, e.standard_error) for e in sorted(seen.evaluations, key=lambda e: e.step)
    ] == [(r.step, r.pass_rate, r.compute, r.standard_error) for r in expected]
    # The gauge is that of now, so of the newest evaluation; what it was at older ones the page does not tell.
    newest = max(seen.evaluations, key=lambda e: e.step)
    assert newest.truncation_ratio == expected[-1].truncation_ratio
    assert {e.truncation_ratio for e in seen.evaluations if e is not newest} == {None}
    status = seen.status["demo"]
    assert (status.step, status.max_staleness) == (190, 8)
    assert status.staleness[0.0] == 100
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


def line(step: int, **more: object) -> str:
    record = {"dataset": "d", "incarnation": 1, "step": step, "pass_rate": 0.5, "compute_device_hours": step / 10}
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


def step_line(step: int, ratio: object) -> str:
    return json.dumps({"step": step, "loss": 0.1, "truncation_ratio": ratio}) + "\n"


def test_an_evaluation_of_the_folder_has_the_truncation_of_its_step(tmp_path: Path) -> None:
    source = RunFolder(tmp_path, "demo")
    evaluations, steps = tmp_path / "evaluations.jsonl", tmp_path / "steps.jsonl"
    evaluations.write_text(line(0) + line(10))
    steps.write_text("".join(step_line(step, step / 100) for step in range(1, 13)) + "torn\n" + step_line(99, None))
    reading = source.read()
    assert [(e.step, e.truncation_ratio) for e in reading.evaluations] == [(0, None), (10, 0.1)]
    assert reading.skipped == {"bad_line": 2}
    # The trainer fell back to step 11 and made step 12 again; step 20 is the evaluation's, step 21 came since.
    with evaluations.open("a") as file:
        file.write(line(20, incarnation=2) + line(30, incarnation=2))
    with steps.open("a") as file:
        file.write("".join(step_line(step, 0.5 + step / 100) for step in range(12, 22)))
    assert [(e.step, e.truncation_ratio) for e in source.read().evaluations] == [(20, 0.7), (30, 0.71)]
    assert source.read().evaluations == []


def test_steps_are_read_to_their_end_however_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_file, "MAX_READ_BYTES", 1000)
    (tmp_path / "evaluations.jsonl").write_text(line(300))
    (tmp_path / "steps.jsonl").write_text("".join(step_line(step, step / 1000) for step in range(1, 301)))
    assert [e.truncation_ratio for e in RunFolder(tmp_path, "demo").read().evaluations] == [0.3]
