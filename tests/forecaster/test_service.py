"""The real process against a real metrics page: live, restarted, and with a trainer that comes and
goes.
"""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from rollcast.connections.port_files import port_file, publish_port
from rollcast.forecaster.run_api import MAX_WAITING_REQUESTS
from rollcast.scaling.decisions.fit import fit
from rollcast.scaling.law.curve import Curve
from rollcast.telemetry import trainer_metrics
from testkit.forecaster.malformed import malformed_requests, send
from testkit.forecaster.recorded_run import TrainerPage, record, run_file
from testkit.forecaster.service_process import Service, running, wait_for
from testkit.forked_programs import ForkedPrograms

SCRAPE = {"kind": "scrape", "every_seconds": 0.2}


def test_a_live_run_is_forecast_and_outlives_trainer_and_service(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    config, points = run_file(tmp_path, SCRAPE, budget={"steps": 290}), record()
    with running(config, tmp_path, services) as service:
        assert service.client.get("/healthz").text == "ok\n"
        assert "away" in service.client.get("/readyz").text
        assert service.forecast() is None
        with TrainerPage() as page:
            publish_port(tmp_path / "demo", "trainer", page.port)
            for reading in points[:10]:
                page.show(reading)
            forecast = service.wait_points(10)
        assert forecast["end"]["compute"] == pytest.approx(1.0, rel=1e-6)
        wait_for(lambda: not service.client.get("/api/runs").json()["source"]["up"])
        assert service.forecast() == forecast
        assert service.stop() == 0

    # The trainer's page shows 16 evaluations at most: the first ten are known from the history
    # only.
    with running(config, tmp_path, services) as service, TrainerPage() as page:
        assert service.wait_points(10)["asymptote"] == forecast["asymptote"]
        for reading in points[10:]:
            page.show(reading)
        records = [
            vars(r) | {"dataset": "arithmetic", "compute_device_hours": r.compute} for r in points
        ]
        (tmp_path / "demo" / "format.json").write_text('{"format": 1}')
        (tmp_path / "demo" / "evaluations.jsonl").write_text(
            "".join(json.dumps(r) + "\n" for r in records)
        )
        publish_port(tmp_path / "demo", "trainer", page.port)
        answer = service.wait_points(30)
        expected = fit(
            Curve.from_points(
                [r.compute for r in points],
                [r.pass_rate for r in points],
                [r.standard_error for r in points],
                name="demo",
            )
        )
        median = expected.asymptote((0.05, 0.25, 0.5, 0.75, 0.95))
        assert [
            answer["asymptote"][q] for q in ("q05", "q25", "q50", "q75", "q95")
        ] == pytest.approx(median.tolist())
        assert answer["verdict"] == str(expected.verdict.kind)
        assert abs(answer["asymptote"]["q50"] - 0.85) < 0.03

        history = service.client.get("/api/runs/demo/history").json()["forecasts"]
        assert [entry["num_points"] for entry in history] == list(range(2, 31))
        past = service.client.get(f"/api/runs/demo/history/{history[4]['id']}").json()
        assert past["forecast"] == history[4]
        assert len(past["compute"]) == len(past["q95"]) == 40
        assert len(service.client.get("/api/runs/demo/points").json()["points"]) == 30

        predicted = service.client.get(
            "/api/runs/demo/predict", params={"compute": [0.5, 1.0]}
        ).json()["predictions"]
        predictive = expected.predictive([0.5, 1.0], (0.05, 0.5, 0.95))
        assert [p["reading"]["q95"] for p in predicted] == pytest.approx(predictive[2].tolist())
        target = service.client.get("/api/runs/demo/target", params={"pass_rate": 0.8}).json()
        assert target["compute"]["q50"] == pytest.approx(
            float(expected.compute_to_target(0.8, (0.5,))[0])
        )
        never = service.client.get("/api/runs/demo/target", params={"pass_rate": 1.0}).json()
        assert never["compute"]["q50"] is None, "most trajectories have a ceiling below it"
        reached = np.isfinite(expected.draws.compute_to(1.0)).mean()
        assert never["probability"] == pytest.approx(float(reached), abs=0.01)
        # Thirty points may have come from the file alone, before the trainer's page was read.
        wait_for(lambda: service.client.get("/api/runs/demo/status").json()["step"] is not None)
        status = service.client.get("/api/runs/demo/status").json()
        assert (status["step"], status["max_staleness"], len(status["staleness"])) == (290, 8, 18)
        assert status["groups"] == "", "the trainer has told of none"
        page.exporter.add(trainer_metrics.GROUP_SIGNALS, 11.0, signal="truncated")
        page.exporter.add(trainer_metrics.GROUP_SIGNALS, 1.0, signal="wrong")
        said = (
            "12 groups came back, 0 usable: 11 with every answer cut off, 1 with every answer wrong"
        )
        wait_for(lambda: service.client.get("/api/runs/demo/status").json()["groups"] == said)
        assert (
            'rollcast_forecast_asymptote{quantile="0.5",run="demo"}'
            in service.client.get("/metrics").text
        )


def test_a_new_incarnation_takes_the_lost_steps_off_the_curve(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record()
    with TrainerPage() as page:
        publish_port(tmp_path / "demo", "trainer", page.port)
        with running(run_file(tmp_path, SCRAPE), tmp_path, services) as service:
            for reading in points[:12]:
                page.show(reading)
            service.wait_points(12)
            page.exporter.set(trainer_metrics.INCARNATION_START, 85.0, incarnation="2")
            answer = wait_for(lambda: (f := service.forecast()) and f["num_lost"] == 3 and f)
            assert (answer["step"], answer["num_points"]) == (80, 9)
            page.show(record(seed=1, incarnation=2)[9])
            assert service.wait_points(10)["step"] == 90


def test_malformed_requests_are_refused_and_nothing_is_lost(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record()
    with TrainerPage() as page, running(run_file(tmp_path, SCRAPE), tmp_path, services) as service:
        publish_port(tmp_path / "demo", "trainer", page.port)
        for reading in points[:12]:
            page.show(reading)
        before = service.wait_points(12)
        for request in malformed_requests(400, seed=0):
            status, body = send(service.port, request)
            assert status < 500, (request[:300], body)
            if status >= 400 and not request.startswith(b"HEAD") and body.startswith(b"{"):
                answer = json.loads(body)
                assert isinstance(answer.get("detail", answer.get("error")), str), body
        assert service.forecast() == before
        schema = service.client.get("/openapi.json").json()
        for path, operations in schema["paths"].items():
            if path.startswith("/api/") and not path.endswith(".svg"):  # a picture has no schema
                for operation in operations.values():
                    assert (
                        "$ref"
                        in operation["responses"]["200"]["content"]["application/json"]["schema"]
                    ), path


def test_a_curve_of_ones_own_is_forecast_over_http(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record()[1:]
    with running(run_file(tmp_path, SCRAPE), tmp_path, services) as service:
        body = {
            "points": [
                {"compute": r.compute, "pass_rate": r.pass_rate, "standard_error": 0.01}
                for r in points
            ],
            "initial": 0.2,
            "predict": [2.0],
        }
        http = service.client.post("/api/fit", json=body).json()
        assert abs(http["asymptote"]["q50"] - 0.85) < 0.03
        assert (
            http["predictions"][0]["reading"]["q05"]
            < 0.83
            < http["predictions"][0]["reading"]["q95"]
        )
        wrong = service.client.post("/api/fit", json={"points": [{"compute": 1, "pass_rate": 45}]})
        assert (wrong.status_code, "pass_rate = 45" in wrong.json()["detail"]) == (422, True)
        tiny = service.client.post(
            "/api/fit", json={"points": [{"compute": 5e-324, "pass_rate": 0.5}]}
        )
        assert (tiny.status_code, "too small" in tiny.json()["detail"]) == (422, True)


def test_a_request_that_waits_is_answered_by_the_next_change(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    points = record()
    with (
        TrainerPage() as page,
        running(run_file(tmp_path, SCRAPE), tmp_path, services) as service,
        ThreadPoolExecutor(1) as pool,
    ):
        publish_port(tmp_path / "demo", "trainer", page.port)
        for reading in points[:5]:
            page.show(reading)
        service.wait_points(5)

        def ask(after: str = "", seconds: float = 0.0) -> Any:
            return service.client.get(
                "/api/runs", params={"after": after, "wait_seconds": seconds}
            ).json()

        def settled() -> str:
            before = ask()["version"]
            return str(before) if ask(before, 0.5)["version"] == before else ""

        for change in (
            lambda: page.show(points[5]),
            lambda: page.exporter.set(trainer_metrics.TRUNCATION_RATIO, 0.25),
            lambda: port_file(tmp_path / "demo", "trainer").unlink(),
        ):
            before = wait_for(settled)
            waiting = pool.submit(ask, before, 10.0)
            change()
            assert waiting.result(30)["version"] != before
        # Whoever waits is answered before the service ends, and keeps it from nothing.
        before = wait_for(settled)
        waiting = pool.submit(ask, before, 10.0)
        time.sleep(2.0)  # it must have arrived
        service.process.terminate()
        assert waiting.result(30)["version"] == before
        assert service.process.wait(20) == 0
        service.client.close()


def test_waiting_requests_that_are_given_up_or_too_many_keep_nobody_out(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with running(run_file(tmp_path, SCRAPE), tmp_path, services) as service:
        newest = service.client.get("/api/runs").json()["version"]
        wait = (
            f"GET /api/runs?after={newest}&wait_seconds=10 HTTP/1.1\r\nHost: here\r\n\r\n".encode()
        )

        def waiting() -> socket.socket:
            asked = socket.create_connection(("127.0.0.1", service.port), timeout=10)
            asked.sendall(wait)
            return asked

        for _ in range(600):  # more than the server takes at once
            waiting().close()
        wait_for(lambda: service.client.get("/healthz").status_code == 200, seconds=5.0)
        wait_for(lambda: not is_answered_at_once(service, newest), seconds=20.0)
        with ExitStack() as held:
            for _ in range(2 * MAX_WAITING_REQUESTS):
                held.enter_context(waiting())
            wait_for(lambda: is_answered_at_once(service, newest), seconds=9.0)
        wait_for(lambda: not is_answered_at_once(service, newest), seconds=20.0)


def is_answered_at_once(service: Service, newest: str) -> bool:
    try:
        service.client.get("/api/runs", params={"after": newest, "wait_seconds": 8.0}, timeout=3.0)
    except httpx.TimeoutException:
        return False
    return True


def test_a_port_in_use_and_an_unwritable_history_are_one_sentence(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with TrainerPage() as page:
        for forecaster, expected in (
            ({"http_port": page.port}, f"forecaster.http_port = {page.port}"),
            (
                {"http_port": 0, "history": "/proc/none/h.sqlite"},
                "forecaster.history = /proc/none/h.sqlite",
            ),
        ):
            config = run_file(tmp_path, SCRAPE, forecaster=forecaster)
            log = tmp_path / "refused.log"
            assert (
                services.start("rollcast.forecaster", ["--config", str(config)], log).wait(60) == 2
            )
            assert log.read_text().strip().splitlines()[-1].startswith(f"error: {expected}")
            assert "Traceback" not in log.read_text()
