"""A real Prometheus scraping a run. More of it: test_prometheus_runs.py."""

from __future__ import annotations

import math
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_curve
from rollcast.curves.evaluations import CurvePoint
from rollcast.curves.sources import prometheus as sources
from rollcast.curves.sources.prometheus import FINEST_SECONDS, PrometheusQueries
from rollcast.local.ports import free_port
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from testkit.forecaster.prometheus_server import (
    NEEDS_PROMETHEUS,
    first_scrapes,
    prometheus,
)
from testkit.forecaster.recorded_run import TrainerPage, record
from testkit.forecaster.service_process import wait_for

pytestmark = NEEDS_PROMETHEUS


def test_a_look_tells_what_is_new_and_once_in_a_while_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LONGEST_SCRAPE_SECONDS", 3.0)
    port, points = free_port("127.0.0.1"), record(12)
    queries = PrometheusQueries(f"http://127.0.0.1:{port}")

    def told() -> list[CurvePoint]:
        return queries.read().evaluations

    with closing(queries), TrainerPage() as page, prometheus(tmp_path, port, [page.port]):
        for reading in points[:10]:
            page.show(reading)
        assert len(wait_for(told)) == 10
        monkeypatch.setattr(sources, "WHOLE_EVERY_SECONDS", math.inf)
        assert wait_for(lambda: not told())
        # An evaluation that a scrape found half written is told whole.
        labels = {"dataset": "arithmetic", "incarnation": "1", "step": "100"}
        page.exporter.set(evaluation_metrics.EVAL_PASS_RATE, points[10].pass_rate, **labels)
        wait_for(lambda: queries.read().skipped["incomplete"])
        wait_for(lambda: not queries.read().skipped["incomplete"])
        page.show(points[10])
        (new,) = wait_for(told)
        found = (new.step, new.pass_rate, new.standard_error, new.compute, new.samples)
        assert found == (100, points[10].pass_rate, 0.01, points[10].compute, 1024.0)
        page.show(points[11])
        (new,) = wait_for(lambda: [item for item in told() if item.step == 110])
        assert abs(new.at - first_scrapes(port, "demo")[110]) < FINEST_SECONDS
        monkeypatch.setattr(sources, "WHOLE_EVERY_SECONDS", 0.0)
        assert sorted(item.step for item in told()) == [reading.step for reading in points]


def test_an_evaluation_that_was_made_twice_is_one_point(tmp_path: Path) -> None:
    """Checkpoint and evaluation fell on one step, and the trainer was killed between the two."""
    port, points, again = free_port("127.0.0.1"), record(12), record(12, seed=1, incarnation=2)
    url = f"http://127.0.0.1:{port}"
    with TrainerPage() as page, prometheus(tmp_path, port, [page.port]):
        for reading in points[:9]:
            page.show(reading)
        page.exporter.set(trainer_metrics.INCARNATION_START, 70.0, incarnation="2")
        for reading in again[7:]:
            page.show(reading)
        expected = [
            *(point.pass_rate for point in points[1:7]),
            *(point.pass_rate for point in again[7:]),
        ]

        def rates() -> list[float]:
            with suppress(UserError):
                return read_curve(url, Columns(), None).pass_rate.tolist()
            return []

        assert (
            wait_for(lambda: (found := rates()) and found[-1] == expected[-1] and found) == expected
        )
