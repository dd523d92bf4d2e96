from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from rollcast.cli import views
from rollcast.cli.views import Follower
from rollcast.config.connections import Http
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.local.forecast_reading import ForecastReading
from rollcast.local.frozen_forecast import LEAST_EVALUATIONS, conclude, freeze, load_frozen
from rollcast.local.status import RunStatus, StatusReader
from rollcast.runfolder import record_file
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord
from rollcast.scaling.decisions.settings import MIN_LAW_POINTS
from rollcast.telemetry import forecaster_metrics, trainer_metrics
from rollcast.telemetry.exporter import Exporter


def settings(tmp_path: Path) -> RunConfig:
    data = {"run": "r", "folder": str(tmp_path), "model": {"path": "m"}, "budget": {"steps": 100}}
    (tmp_path / "r").mkdir()
    return parse_run_config(data, source="test")


def append(path: Path, **record: Any) -> None:
    append_text(path, json.dumps(record) + "\n")


def append_text(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def evaluation(step: int, rate: float, incarnation: int = 1) -> dict[str, Any]:
    return {
        "incarnation": incarnation,
        "step": step,
        "compute_device_hours": step / 1000,
        "pass_rate": rate,
        "standard_error": 0.01,
        "run": "r",
    }


def test_the_state_of_a_run_is_read_from_its_folder_alone(tmp_path: Path) -> None:
    config = settings(tmp_path)
    folder = config.run_folder
    reader = StatusReader(config)
    assert reader.read() == RunStatus(budget_share=0.0), "no start is known either"
    append(folder / "evaluations.jsonl", **evaluation(0, 0.2))
    append(folder / "evaluations.jsonl", **evaluation(10, 0.4))
    append_text(folder / "evaluations.jsonl", "torn\n[1]\n{}\n")
    append(folder / "steps.jsonl", step=9, reward_mean=0.3, staleness_tokens={"0": 10, "1": 30})
    append(folder / "steps.jsonl", step=10, reward_mean=0.5, staleness_tokens={"1": 5})
    append_text(folder / "steps.jsonl", '{"step": 11, "rewa')
    status = reader.read()
    assert [(point.step, point.pass_rate) for point in status.evaluations] == [(0, 0.2), (10, 0.4)]
    assert (status.step, status.reward_mean, status.budget_share) == (10, 0.5, 0.1)
    assert status.staleness == {0: 10, 1: 35}
    assert status.compute_device_hours == 0.01
    assert reader.num_skipped == 3, "the torn line of steps may be written to its end yet"
    append_text(folder / "steps.jsonl", 'rd_mean": 0.6}\n\n')
    assert reader.read().step == 11
    assert reader.num_skipped == 3


def test_episodes_are_those_of_the_newest_step(tmp_path: Path) -> None:
    config = settings(tmp_path)
    folder = config.run_folder
    reader = StatusReader(config)
    append(
        folder / "steps.jsonl",
        step=1,
        episode_turns_mean=3.0,
        episode_calls_mean=2.0,
        malformed_calls_share=0.5,
    )
    assert reader.read().episodes == (
        "3.0 turns and 2.0 calls an episode",
        "50.0% of the calls malformed",
    )
    append(folder / "steps.jsonl", step=2)
    assert reader.read().episodes == ()


def test_a_long_file_is_read_to_its_end_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file, "MAX_READ_BYTES", 100)
    path = tmp_path / "lines.jsonl"
    path.write_text(
        "".join(
            json.dumps({"step": step, "text": "x" * step}) + "\nnonsense\n" for step in range(60)
        )
    )
    reader = RecordFile(path, StepRecord)
    assert [record.step for record in reader.read()] == list(range(60))
    assert reader.num_skipped == 60
    append(path, step=60)
    assert [record.step for record in reader.read()] == [60]


def test_a_file_that_was_written_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    """A reader that goes on from where the old file ended would see nothing of a shorter one."""
    config = settings(tmp_path)
    path, reader = config.run_folder / "evaluations.jsonl", StatusReader(config)
    for step in (0, 10, 20):
        append(path, **evaluation(step, 0.3))
    assert [item.step for item in reader.read().evaluations] == [0, 10, 20]
    path.write_text(json.dumps(evaluation(0, 0.7)) + "\n")
    assert [(item.step, item.pass_rate) for item in reader.read().evaluations] == [(0, 0.7)]


def test_metrics_pages_are_read_where_services_publish_them(tmp_path: Path) -> None:
    config = settings(tmp_path)
    exporter = Exporter("r")
    exporter.set(trainer_metrics.TRAINER_STEP, 7)
    exporter.set(trainer_metrics.COMPUTE_STATE, 0.25, role="trainer")
    exporter.set(trainer_metrics.COMPUTE_STATE, 0.5, role="generator")
    exporter.set(trainer_metrics.GENERATORS, 2, state="ready")
    exporter.add(trainer_metrics.TOKENS, 100, role="generator")
    for quantile, value in (("0.05", 0.7), ("0.5", 0.8), ("0.95", 0.9)):
        exporter.set(forecaster_metrics.FORECAST_ASYMPTOTE, value, quantile=quantile)
        exporter.set(forecaster_metrics.FORECAST_HEADROOM, value - 0.6, quantile=quantile)
        exporter.set(forecaster_metrics.FORECAST_END, value - 0.05, quantile=quantile)
    exporter.set(forecaster_metrics.FORECAST_VERDICT, 0, verdict="too_early")
    exporter.set(forecaster_metrics.FORECAST_VERDICT, 1, verdict="forecastable")
    listener = listen("127.0.0.1", 0, setting="port")
    server = HttpServer(service_routes(exporter.render, lambda: (True, "ok")), listener, Http())
    server.start()
    try:
        for service in ("trainer", "forecaster"):
            publish_port(config.run_folder, service, server.port)
        reader = StatusReader(config)
        reader.read()
        exporter.add(trainer_metrics.TOKENS, 1000, role="generator")
        status = reader.read()
    finally:
        server.stop()
    assert (status.step, status.compute_device_hours, status.generators_ready) == (7, 0.75, 2)
    assert status.tokens_per_second is not None
    assert status.tokens_per_second > 0
    assert status.forecast is not None
    assert status.forecast.verdict == "forecastable"
    assert status.forecast.end == pytest.approx((0.65, 0.75, 0.85))
    assert reader.read().forecast is None  # the services are gone: the folder is still read


def test_another_runs_series_on_a_page_are_not_this_runs(tmp_path: Path) -> None:
    """A forecaster that reads a Prometheus server exports every run it finds there."""
    config = settings(tmp_path)
    pages = []
    for run, asymptote, verdict in (
        ("a", 0.1, "too_early"),
        ("r", 0.8, "forecastable"),
        ("z", 0.3, "not_sigmoid"),
    ):
        exporter = Exporter(run)
        for quantile in ("0.05", "0.5", "0.95"):
            exporter.set(forecaster_metrics.FORECAST_ASYMPTOTE, asymptote, quantile=quantile)
            exporter.set(forecaster_metrics.FORECAST_HEADROOM, asymptote / 2, quantile=quantile)
        exporter.set(forecaster_metrics.FORECAST_VERDICT, 1, verdict=verdict)
        pages.append(exporter)
    listener = listen("127.0.0.1", 0, setting="port")
    routes = service_routes(lambda: b"".join(page.render() for page in pages), lambda: (True, "ok"))
    server = HttpServer(routes, listener, Http())
    server.start()
    try:
        publish_port(config.run_folder, "forecaster", server.port)
        reader = StatusReader(config)
        forecast = reader.read().forecast
    finally:
        server.stop()
    assert reader.read().forecast is None
    assert forecast is not None
    assert forecast.verdict == "forecastable"
    assert forecast.asymptote == (0.8, 0.8, 0.8)


def status_at(
    share: float,
    rates: list[float],
    end: tuple[float, float, float] | None,
    evaluated: float | None = None,
    known: int | None = None,
) -> RunStatus:
    """`evaluated`: share of the budget at the newest evaluation; `known`: of `rates` those that the
    forecast has seen.

    So many stand before `rates` that the law has enough.
    """
    known = None if known is None else known + MIN_LAW_POINTS - 1
    rates = rates[:1] * (MIN_LAW_POINTS - 1) + rates
    points = tuple(EvaluationRecord(1, 8 * i, rate, i / 10) for i, rate in enumerate(rates))
    known = len(rates) if known is None else known
    forecast = ForecastReading("forecastable", (0.8, 0.9, 0.95), end, 2.0, known)
    evaluated = share if evaluated is None else evaluated
    return RunStatus(
        step=int(100 * share),
        budget_share=share,
        evaluated_share=evaluated,
        evaluations=points,
        forecast=forecast,
    )


def test_the_freeze_waits_for_a_forecast_that_knows_the_curve_until_half_of_the_budget(
    tmp_path: Path,
) -> None:
    end = (0.7, 0.8, 0.86)
    assert freeze(tmp_path, status_at(0.53, [0.1, 0.3], end, evaluated=0.48)) is None, (
        "not answered yet"
    )
    assert (
        freeze(tmp_path, status_at(0.54, [0.1, 0.3, 0.5], end, evaluated=0.5, known=2)) is None
    ), "not refitted yet"
    frozen = freeze(tmp_path, status_at(0.55, [0.1, 0.3, 0.5], end, evaluated=0.5))
    assert frozen is not None
    assert (frozen.step, frozen.curve_until_step, frozen.last_value) == (55, 48, 0.5)
    assert "from the curve until 48" in frozen.sentence()


def test_below_five_evaluations_after_the_first_step_nothing_is_frozen_and_the_end_says_so(
    tmp_path: Path,
) -> None:
    assert LEAST_EVALUATIONS == MIN_LAW_POINTS, "what `fit` asks for"
    status = status_at(0.55, [0.3], (0.7, 0.8, 0.86), evaluated=0.5)
    assert sum(point.step > 0 for point in status.evaluations) == MIN_LAW_POINTS - 1
    assert freeze(tmp_path, status) is None
    result = conclude(tmp_path, status)
    assert result is not None
    assert (
        "no forecast was ready at half of the budget, which takes five evaluations"
        in result.sentence()
    )


def test_an_evaluation_that_does_not_come_is_not_waited_for_long(tmp_path: Path) -> None:
    frozen = freeze(
        tmp_path, status_at(0.56, [0.1, 0.3, 0.4], (0.7, 0.8, 0.86), evaluated=0.45, known=2)
    )
    assert frozen is not None
    assert (frozen.last_value, frozen.curve_until_step) == (0.3, 40), (
        "the newest evaluation that the forecast knew"
    )


def test_a_short_run_does_not_wait_where_the_next_step_would_be_too_late(tmp_path: Path) -> None:
    early = dataclasses.replace(status_at(0.5, [0.1, 0.3], (0.7, 0.8, 0.86), evaluated=0.4), step=4)
    assert freeze(tmp_path, early) is not None, "4 of 8 steps: the next one is at 0.625"


def test_the_forecast_is_frozen_once_at_half_of_the_budget_and_held_against_the_end(
    tmp_path: Path,
) -> None:
    end = (0.7, 0.8, 0.86)
    assert freeze(tmp_path, status_at(0.49, [0.1, 0.3], end)) is None
    assert freeze(tmp_path, status_at(0.5, [0.1, 0.3], None)) is None
    frozen = freeze(tmp_path, status_at(0.52, [0.1, 0.3, 0.5], end))
    assert frozen is not None
    assert freeze(tmp_path, status_at(0.53, [0.1, 0.3, 0.5], (0.1, 0.2, 0.3))) is None
    assert load_frozen(tmp_path) == frozen
    result = conclude(tmp_path, status_at(1.0, [0.1, 0.3, 0.5, 0.84, 0.85, 0.86], end))
    assert result is not None
    assert result.measured == pytest.approx(0.85)
    assert result.error == pytest.approx(-0.05)
    assert result.last_value_error == pytest.approx(-0.35)
    assert result.inside is True
    assert result.gain_share_at_freeze == pytest.approx(0.4 / 0.75)
    assert "error -0.050" in result.sentence()
    assert json.loads((tmp_path / "result.json").read_text())["frozen"]["median"] == 0.8


def test_a_full_disk_at_half_of_the_budget_is_one_line_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path)
    monkeypatch.setattr(
        StatusReader, "read", lambda _: status_at(0.5, [0.1, 0.3], (0.7, 0.8, 0.86))
    )
    monkeypatch.setattr("rollcast.cli.views.REFRESH_SECONDS", 0.0)
    follower = Follower(config)
    blocked = config.run_folder / "frozen_forecast.tmp"
    blocked.mkdir()
    assert [
        line
        for line in follower.news()
        if "frozen_forecast.json cannot be written (Is a directory)" in line
    ]
    assert follower.news() == []
    blocked.rmdir()
    assert ["frozen at step 50" in line for line in follower.news()] == [True]
    (config.run_folder / "result.tmp").mkdir()
    with pytest.raises(UserError, match=r"result\.json cannot be written"):
        conclude(config.run_folder, status_at(1.0, [0.1, 0.5], None))


def test_a_forecast_that_came_too_late_is_not_counted(tmp_path: Path) -> None:
    assert freeze(tmp_path, status_at(0.61, [0.1, 0.5], (0.7, 0.8, 0.86))) is None
    result = conclude(tmp_path, status_at(1.0, [0.1, 0.5], None))
    assert result is not None
    assert result.error is None
    assert "no forecast was ready" in result.sentence()
    assert conclude(tmp_path, RunStatus()) is None


def test_an_evaluation_that_lacks_prompts_is_left_out_of_the_screen_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "REFRESH_SECONDS", 0.0)
    config = settings(tmp_path)
    follower = Follower(config)
    lossy = {"num_prompts": 35, "asked_prompts": 40, "missing_prompts": 5}
    append(config.run_folder / "evaluations.jsonl", **evaluation(0, 0.2))
    append(config.run_folder / "evaluations.jsonl", **evaluation(10, 0.9) | lossy)
    news = follower.news()
    told = "1 evaluation with less than 90 % of the prompts graded left out of curve and forecast"
    assert [line for line in news if "left out" in line] == [told]
    assert [point.step for point in follower.status.evaluations] == [0]
    assert not any("0.9" in line for line in news)
    assert follower.news() == []


def test_why_no_group_is_used_is_told_once_before_the_first_step_and_whom_the_next_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off the trainer's own page; the line is an error, so that it stands first and stays in the
    log.
    """
    monkeypatch.setattr(views, "REFRESH_SECONDS", 0.0)
    config = settings(tmp_path)
    (config.run_folder / "run.json").touch()
    exporter = Exporter("r")
    exporter.set(trainer_metrics.GENERATORS, 0, state="ready")
    listener = listen("127.0.0.1", 0, setting="port")
    server = HttpServer(service_routes(exporter.render, lambda: (True, "ok")), listener, Http())
    server.start()
    troubles: list[str] = []

    def report(line: str, *, trouble: bool = False) -> None:
        if trouble:
            troubles.append(line)

    try:
        publish_port(config.run_folder, "trainer", server.port)
        follower = Follower(config)
        for _ in range(12):
            assert troubles == []
            exporter.add(trainer_metrics.GROUP_SIGNALS, signal="truncated")
            follower.tell(report)
        for _ in range(3):
            follower.tell(report)
        (line,) = troubles
        assert line.startswith(
            "none of the first 12 groups can be trained on: 12 with every answer cut off; raise "
        )
        assert follower.status.waits_for is None, "the start has its own words"
        append(config.run_folder / "steps.jsonl", step=1, at=time.time() + 1)
        follower.tell(report)
        assert follower.status.waits_for == "a generator"
    finally:
        server.stop()
    follower.tell(report)
    assert follower.status.waits_for == "the trainer"
