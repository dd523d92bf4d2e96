"""A proof: runs in a real Prometheus, which is killed and started again in between."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from rollcast.autoscaler.sources import PrometheusFleet
from rollcast.config.autoscaler import FleetPrometheus
from rollcast.config.curve_sources import CurveQueries
from rollcast.curves.sources.prometheus import PrometheusQueries
from rollcast.local.ports import free_port
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.prometheus_reader import SourceAway
from testkit.forecaster.prometheus_server import (
    NEEDS_PROMETHEUS,
    PROMTOOL,
    configured_prometheus,
    prometheus,
)
from testkit.forecaster.recorded_run import Reading, TrainerPage, cut_off_from, record, run_file
from testkit.forecaster.service_process import running, wait_for
from testkit.forked_programs import ForkedPrograms

pytestmark = NEEDS_PROMETHEUS


@pytest.mark.skipif(
    PROMTOOL is None,
    reason="needs promtool to write samples of the past (Debian package prometheus)",
)
def test_a_run_of_another_framework_is_found_by_its_expressions(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = cut_off_from(13, record(20))
    now = time.time() // 60 * 60
    lines = []
    # Ten scrapes, a minute apart, between two evaluations; the newest evaluation is 20 minutes old.
    exported: dict[str, Callable[[Reading], float]] = {
        "acc": lambda r: 100 * r.pass_rate,
        "gpu_seconds": lambda r: 3600 * r.compute,
        "cut_percent": lambda r: 100 * r.truncation_ratio,
    }
    for name, value in exported.items():
        lines.append(f"# TYPE {name} gauge")
        for index, reading in enumerate(points):
            for minute in range(10):
                at = now - 60 * (10 * (len(points) - index) + 10 - minute)
                lines.append(f'{name}{{experiment="a"}} {value(reading)!r} {at:.0f}')
                lines.append(f'{name}{{experiment="b"}} 1.0 {at:.0f}')
    (tmp_path / "past.om").write_text("\n".join([*lines, "# EOF", ""]))
    assert PROMTOOL is not None
    command = [
        PROMTOOL,
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        str(tmp_path / "past.om"),
        str(tmp_path / "data"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    port = free_port("127.0.0.1")
    curve: dict[str, Any] = {
        "run": "theirs",
        "pass_rate": 'acc{experiment="a"} / 100',
        "compute": 'gpu_seconds{experiment="a"} / 3600',
        "truncation_ratio": 'cut_percent{experiment="a"} / 100',
        "look_back_hours": 12,
        "budget": 30.0,
    }
    source: dict[str, Any] = {
        "kind": "prometheus",
        "url": f"http://127.0.0.1:{port}",
        "every_seconds": 0.5,
        "curves": [curve],
    }
    with (
        prometheus(tmp_path, port, []),
        running(run_file(tmp_path, source), tmp_path, services) as service,
    ):
        service.wait_points(20, "theirs")
        found = service.client.get("/api/runs/theirs/points").json()["points"]
        assert [p["compute"] for p in found] == pytest.approx([r.compute for r in points])
        assert [p["pass_rate"] for p in found] == pytest.approx([r.pass_rate for r in points])
        assert [p["truncation_ratio"] for p in found] == pytest.approx(
            [r.truncation_ratio for r in points]
        )
        options = ("--pass-rate", curve["pass_rate"], "--compute", curve["compute"])
        command = [
            sys.executable,
            "-m",
            "rollcast.cli.main",
            "fit",
            source["url"],
            *options,
            "--json",
        ]
        fitted = json.loads(
            subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        )
        assert (fitted["compute"], fitted["pass_rate"]) == pytest.approx(
            (points[-1].compute, points[-1].pass_rate)
        )
        assert fitted["num_points"] == 20
        # Prometheus's own client reads the forecast beyond now.
        later = f"--time={now + 86_400:.0f}"
        address, query = (
            f"http://127.0.0.1:{service.port}/prometheus",
            'rollcast_timeline_pass_rate{run="theirs"}',
        )
        asked = [PROMTOOL, "query", "instant", later, address, query]
        read = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=30).stdout
        assert read.count("rollcast_timeline_pass_rate{") == 5
        answer = service.forecast("theirs")
        assert answer is not None
        assert answer["num_points"] == 20
        assert (answer["advice"]["budget"], answer["advice"]["is_assumed"]) == (30.0, False)
        assert (answer["verdict"], "answers are truncated" in str(answer["reason"])) == (
            "regime_change",
            True,
        )

        ambiguous = PrometheusQueries(
            source["url"], curves=(CurveQueries(**(curve | {"pass_rate": "acc"})),)
        )
        with pytest.raises(SourceAway, match="selects 2 series, needs one"):
            ambiguous.read()
        ambiguous.close()


def test_of_two_runs_of_one_name_each_namespace_has_its_own(tmp_path: Path) -> None:
    """Profiles name their runs: one Prometheus has many of one name, told apart by the namespace
    alone.
    """
    port, points = free_port("127.0.0.1"), {"a": record(8), "b": record(8, seed=1)}
    with ExitStack() as stack:
        pages = {place: stack.enter_context(TrainerPage()) for place in points}
        for place, page in pages.items():
            for reading in points[place]:
                page.show(reading)
            page.exporter.set(trainer_metrics.TRAINER_STEP, float(ord(place)))
        targets = ", ".join(
            (
                f"{{targets: ['127.0.0.1:{page.port}'], labels: {{namespace: {place}, pod: "
                f"{place}-0}}}}"
            )
            for place, page in pages.items()
        )
        configuration = (
            f"global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: t, static_configs: "
            f"[{targets}]}}]\n"
        )
        stack.enter_context(configured_prometheus(tmp_path, port, configuration))
        url = f"http://127.0.0.1:{port}"
        for place, expected in points.items():
            queries = stack.enter_context(closing(PrometheusQueries(url, namespace=place)))
            found = wait_for(lambda queries=queries: queries.read().evaluations)  # type: ignore[misc]
            assert [item.pass_rate for item in found] == pytest.approx(
                [item.pass_rate for item in expected]
            )
            fleet = stack.enter_context(
                closing(PrometheusFleet(FleetPrometheus(url=url, namespace=place), "demo"))
            )
            (step,) = [
                sample.value
                for sample in fleet.read().trainer
                if sample.name == trainer_metrics.TRAINER_STEP.name
            ]
            assert step == ord(place)


def test_runs_are_read_from_prometheus_and_its_outage_loses_nothing(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    port, points = free_port("127.0.0.1"), record()
    source: dict[str, Any] = {
        "kind": "prometheus",
        "url": f"http://127.0.0.1:{port}",
        "every_seconds": 0.5,
    }
    with TrainerPage() as page, TrainerPage("other") as other:
        for reading in points[:10]:
            page.show(reading)
        for role, hours in (("generator", 2.0), ("trainer", 1.0)):
            page.exporter.add(trainer_metrics.COMPUTE_SPENT, hours, role=role)
        for reading in record(asymptote=0.6, seed=1)[:12]:
            other.show(reading)
        with running(run_file(tmp_path, source), tmp_path, services) as service:
            with prometheus(tmp_path, port, [page.port, other.port]):
                before = service.wait_points(10)
                assert service.wait_points(12, "other")["run"] == "other"
                status = service.client.get("/api/runs/demo/status").json()
                assert (status["max_staleness"], status["step"]) == (8, 90)
                assert status["spent_device_hours"] == 3.0
            wait_for(lambda: not service.client.get("/api/runs").json()["source"]["up"])
            assert service.forecast() == before
            for reading in points[10:14]:
                page.show(reading)
            with prometheus(tmp_path, port, [page.port, other.port]):
                assert service.wait_points(14)["step"] == 130
                assert service.client.get("/api/runs").json()["source"]["up"]

        # A forecaster that starts later finds in Prometheus what the page no longer shows.
        for reading in points[14:]:
            page.show(reading)
        (tmp_path / "demo" / "forecasts.sqlite").unlink()
        with (
            prometheus(tmp_path, port, [page.port]),
            running(run_file(tmp_path, source), tmp_path, services) as service,
        ):
            assert service.wait_points(29)["step"] == 290
