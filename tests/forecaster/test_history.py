"""The history across restarts, bounded, and with a file that is not readable."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.evaluations import CurvePoint, Reading
from rollcast.curves.run_forecast import RunBudget
from rollcast.forecaster import history as history_module
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from testkit.forecaster.recorded_run import record


def evaluations(count: int = 12, run: str = "demo", dataset: str = "d") -> list[CurvePoint]:
    return [
        CurvePoint(
            run,
            dataset,
            r.incarnation,
            r.step,
            r.pass_rate,
            r.compute,
            r.standard_error,
            r.trained_tokens,
            64.0,
            7.0,
        )
        for r in record()[:count]
    ]


def build(path: Path) -> tuple[ForecastEngine, Board, History, ForecastMetrics]:
    board, metrics, history = Board(), ForecastMetrics("demo"), History(path)
    return (
        ForecastEngine(board, history, metrics, {"demo": RunBudget(steps=300)}),
        board,
        history,
        metrics,
    )


def test_a_restart_gives_the_same_forecast_and_keeps_the_past(tmp_path: Path) -> None:
    engine, board, history, _ = build(tmp_path / "h.sqlite")
    for item in evaluations():
        engine.take(Reading(evaluations=[item]))
    before, grid = board.get("demo"), engine.grid("demo")
    assert before is not None
    past = history.forecasts("demo")
    assert [entry.num_points for entry in past] == list(range(2, 13))
    assert not any(entry.replayed for entry in past)
    history.close()

    engine, board, history, _ = build(tmp_path / "h.sqlite")
    after = board.get("demo")
    assert after is not None
    assert after.evaluations == before.evaluations
    assert after.forecast.asymptote().tolist() == before.forecast.asymptote().tolist()
    assert engine.grid("demo") == grid
    assert history.forecasts("demo") == past
    engine.take(Reading(evaluations=evaluations()))
    assert len(history.forecasts("demo")) == len(past)
    history.close()


def test_evaluations_that_come_at_once_are_forecast_as_if_they_had_come_one_by_one(
    tmp_path: Path,
) -> None:
    engine, _, slow, _ = build(tmp_path / "slow.sqlite")
    for item in evaluations():
        engine.take(Reading(evaluations=[item]))
    engine, _, quick, _ = build(tmp_path / "quick.sqlite")
    engine.take(Reading(evaluations=evaluations()))
    said, expected = quick.forecasts("demo"), slow.forecasts("demo")
    assert [entry.asymptote for entry in said] == [entry.asymptote for entry in expected]
    assert [entry.replayed for entry in said] == [True] * 10 + [False]
    assert said[0].made_at == 7.0
    slow.close()
    quick.close()


def test_the_history_is_bounded_and_thins_the_older_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "MAX_FORECASTS", 8)
    engine, _, history, _ = build(tmp_path / "h.sqlite")
    for item in evaluations(20):
        engine.take(Reading(evaluations=[item]))
    kept = [entry.num_points for entry in history.forecasts("demo")]
    assert len(kept) <= 8
    assert kept[0] == 2
    assert kept[-4:] == [17, 18, 19, 20]
    assert history.forecast("demo", 10**9) is None
    history.close()


def test_an_unreadable_file_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    path.write_bytes(b"this is no database, and long enough to be looked at as one" * 10)
    history = History(path)
    assert history.load() == ([], {}, {})
    assert (tmp_path / "h.sqlite.unreadable").exists()
    history.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"forecaster.history = .*: cannot be written"):
        History(tmp_path / "file" / "h.sqlite")


def test_a_disk_that_takes_no_writes_does_not_stop_the_forecast(tmp_path: Path) -> None:
    engine, board, history, metrics = build(tmp_path / "h.sqlite")
    history.close()
    engine.take(Reading(evaluations=evaluations()))
    forecast = board.get("demo")
    assert forecast is not None
    assert len(forecast.evaluations) == 12
    assert b'rollcast_forecast_skipped_total{reason="history_write",run="demo"}' in metrics.render()


def test_runs_and_data_sets_share_one_page_of_metrics(tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    engine, board, history, metrics = build(tmp_path / "h.sqlite")
    engine.take(
        Reading(
            evaluations=evaluations(7)
            + evaluations(7, run="other")
            + evaluations(7, dataset="hard")
        )
    )
    assert [item.name for item in board.all()] == ["demo", "demo:hard", "other"]
    families = list(text_string_to_metric_families(metrics.render().decode()))
    assert len({family.name for family in families}) == len(families)
    series = next(
        family for family in families if family.name == "rollcast_forecast_pass_rate"
    ).samples
    assert len(series) == 3 * 40 * 5
    before = {(sample.name, tuple(sample.labels.items())) for sample in series}
    engine.take(Reading(evaluations=evaluations(9)))
    families = list(text_string_to_metric_families(metrics.render().decode()))
    series = next(
        family for family in families if family.name == "rollcast_forecast_pass_rate"
    ).samples
    assert {(sample.name, tuple(sample.labels.items())) for sample in series} == before
    history.close()
