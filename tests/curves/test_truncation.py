"""Answers that come to be cut off: read with each evaluation, kept, shown, and heeded by the
verdict.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from rollcast.connections.port_files import publish_port
from rollcast.curves.axis import known_truncation, make_curve, without_start_up
from rollcast.curves.evaluations import CurvePoint, RunHistory
from rollcast.curves.sources.prometheus import PrometheusQueries
from rollcast.local.ports import free_port
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, PROMTOOL, prometheus
from testkit.forecaster.recorded_run import TrainerPage, cut_off_from, record, run_file
from testkit.forecaster.service_process import running
from testkit.forked_programs import ForkedPrograms


def test_the_verdict_heeds_truncation_live_and_after_a_restart(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = cut_off_from(14, record(20))
    config = run_file(tmp_path, {"kind": "scrape", "every_seconds": 0.2})
    with TrainerPage() as page, running(config, tmp_path, services) as service:
        publish_port(tmp_path / "demo", "trainer", page.port)
        verdicts = []
        page.show(points[0])
        for number, reading in enumerate(points[1:], start=2):
            page.show(reading)
            broken = service.wait_points(number)
            verdicts.append(broken["verdict"])
        assert "regime_change" not in verdicts[:13]
        assert broken["verdict"] == "regime_change"
        assert "30% of the answers are truncated" in str(broken["reason"])
        shown = service.client.get("/api/runs/demo/points").json()["points"]
        assert [p["truncation_ratio"] for p in shown[1:]] == [
            p.truncation_ratio for p in points[1:]
        ]
    with running(config, tmp_path, services) as service:
        again = service.wait_points(20)
        assert (again["verdict"], again["reason"]) == (broken["verdict"], broken["reason"])


def test_a_curve_of_ones_own_may_tell_its_truncation(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record(20)[1:]
    plain = [
        {"compute": p.compute, "pass_rate": p.pass_rate, "standard_error": p.standard_error}
        for p in points
    ]
    cut = [
        point | {"truncation_ratio": p.truncation_ratio}
        for point, p in zip(plain, cut_off_from(13, points), strict=True)
    ]
    with running(run_file(tmp_path, {"kind": "scrape"}), tmp_path, services) as service:
        asked = {"plain": plain, "cut": cut, "backwards": cut[::-1]}
        said = {
            name: service.client.post("/api/fit", json={"points": body, "predict": [2.0]}).json()
            for name, body in asked.items()
        }
    assert said["plain"]["verdict"] != "regime_change"
    assert said["cut"]["verdict"] == "regime_change"
    assert said["backwards"] == said["cut"]
    assert said["cut"]["asymptote"] is None
    cut_off, whole = (said[name]["predictions"][0]["reading"] for name in ("cut", "plain"))
    assert cut_off == whole


def test_what_is_unknown_is_taken_from_its_neighbours() -> None:
    assert known_truncation(np.array([np.nan, np.nan])) is None
    ratios = known_truncation(np.array([np.nan, 0.1, np.nan, 0.3, np.nan]))
    assert ratios is not None
    np.testing.assert_allclose(ratios, [0.1, 0.1, 0.2, 0.3, 0.3])
    evaluations = tuple(
        CurvePoint(
            "demo",
            "d",
            1,
            r.step,
            r.pass_rate,
            r.compute,
            0.01,
            None,
            None,
            0.0,
            0.1 if i > 5 else None,
        )
        for i, r in enumerate(record(12))
    )
    _, curve = make_curve(RunHistory("demo", evaluations), without_start_up)
    assert curve.truncation_ratio is not None
    np.testing.assert_allclose(curve.truncation_ratio, 0.1)


@NEEDS_PROMETHEUS
@pytest.mark.skipif(
    PROMTOOL is None,
    reason="needs promtool to write samples of the past (Debian package prometheus)",
)
def test_prometheus_is_asked_when_each_evaluation_came_and_knows_what_was_cut_off_then(
    tmp_path: Path,
) -> None:
    """A run of 200 minutes that ended an hour ago: nothing of it is on any metrics page."""
    points, begun = record(20), time.time() // 60 * 60 - 260 * 60
    labels = [f'{{run="past",dataset="d",incarnation="1",step="{r.step}"}}' for r in points]
    scrapes = [begun + 60 * minute for minute in range(200)]
    pages: dict[str, list[str]] = {}
    for minute, at in enumerate(scrapes):
        newest = minute // 10
        for place in range(max(0, newest - 15), newest + 1):
            point = points[place]
            values = {
                "pass_rate": point.pass_rate,
                "compute_device_hours": point.compute,
                "truncation_ratio": 0.01 * place,
            }
            for name, value in values.items():
                pages.setdefault(f"rollcast_eval_{name}", []).append(
                    f"{labels[place]} {value!r} {at:.0f}"
                )
    lines = []
    for name, samples in pages.items():
        lines += [f"# TYPE {name} gauge", *(f"{name}{sample}" for sample in samples)]
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
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    port = free_port("127.0.0.1")
    queries = PrometheusQueries(f"http://127.0.0.1:{port}")
    with prometheus(tmp_path, port, []):
        reading = queries.read()
    queries.close()
    assert not reading.skipped
    found = sorted(reading.evaluations, key=lambda e: e.step)
    assert [e.step for e in found] == [r.step for r in points]
    assert [e.at for e in found] == [begun + 600 * i for i in range(20)]
    assert [e.truncation_ratio for e in found] == [0.01 * i for i in range(20)]
