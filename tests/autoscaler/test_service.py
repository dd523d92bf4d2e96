"""The real process: it measures pages, decides, and tells KEDA or the (stand-in) API server.

test_service_starts_and_ends.py has its starts in the middle of a run, and its ends.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollcast.connections.port_files import port_file, publish_port
from rollcast.telemetry import autoscaler_metrics
from testkit.forked_programs import ForkedPrograms
from tests.autoscaler.api_server import JOBS, NAME, NAMESPACE, PODS, SCALE, ApiServer, job
from tests.autoscaler.keda import Keda, eventually
from tests.autoscaler.pages import RUN, Fleet, Page
from tests.autoscaler.service import TRAINER, about, running


def test_keda_is_told_what_a_starved_trainer_needs(tmp_path: Path, fleet: Fleet) -> None:
    with running(tmp_path, None, {"mode": "keda"}) as service:
        keda = Keda(service.port("autoscaler-grpc"))
        try:
            keda.follow()
            four = about(4)  # 1,600 tokens a second at 400 of each
            eventually(
                lambda: (
                    service.metric(autoscaler_metrics.GENERATORS_DESIRED) is not None
                    and four(keda.desired())
                ),
                40,
            )
            assert set(keda.told) == {True}
            assert service.get("/healthz").text == "ok\n"
            assert "tokens/s needed" in service.get("/readyz").text
            assert service.metric(autoscaler_metrics.AUTOSCALER_MEASURED) == 1.0
        finally:
            keda.close()
        assert service.stop() == 0, service.log.read_text()


def test_what_can_no_longer_be_measured_holds_the_number_and_says_so(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with running(tmp_path, services, {"mode": "hpa"}) as service:
        eventually(lambda: about(4)(service.metric(autoscaler_metrics.GENERATORS_DESIRED)), 40)
        measured = service.metric(autoscaler_metrics.GENERATORS_DESIRED)
        port_file(tmp_path / RUN, "trainer").unlink()
        eventually(lambda: service.metric(autoscaler_metrics.AUTOSCALER_MEASURED) == 0.0)
        eventually(lambda: "holding" in service.get("/readyz").text)
        held = service.metric(autoscaler_metrics.GENERATORS_DESIRED)
        time.sleep(2.5)
        assert service.metric(autoscaler_metrics.GENERATORS_DESIRED) == held
        assert held is not None
        assert measured is not None
        assert held >= measured, "the last measurements may still have raised it"
        assert not port_file(tmp_path / RUN, "autoscaler-grpc").exists(), "only KEDA is served gRPC"
        assert service.stop() == 0


def test_the_controller_scales_and_marks_pods_before_it_lowers(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.need = 1_600.0
    with ApiServer() as server:
        server.add_pod("g0", "10.1.0.1")
        server.add_pod("g1", "10.1.0.2")
        server.replicas = 2
        # Half of a window is measured before anything is decided: of a second that is a few steps,
        # which overshoots.
        settings = {
            "mode": "controller",
            "deployment": NAME,
            "namespace": NAMESPACE,
            "window_seconds": 4.0,
        }
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            eventually(lambda: about(4)(server.replicas), 40)
            assert server.costs() == {}, "nothing is marked for a rise"
            eventually(lambda: "GeneratorsRaised" in [event["reason"] for event in server.events])
            with ExitStack() as stack:
                for _ in range(server.replicas - 2):
                    fleet.generators.append(page := stack.enter_context(Page()))
                    publish_port(tmp_path / RUN, f"g{len(fleet.generators) - 1}", page.port)
                high = server.replicas
                fleet.inflight = {0: 900.0, 1: 50.0}
                fleet.need = 800.0
                eventually(lambda: server.replicas < high, 100)
                log = [path for method, path in server.log if method == "PATCH"]
                lowered = max(place for place, path in enumerate(log) if path == SCALE)
                marks = [
                    place for place, path in enumerate(log) if path in (f"{PODS}/g0", f"{PODS}/g1")
                ]
                assert marks
                assert min(marks) < lowered
                assert int(server.costs()["g1"]) < int(server.costs()["g0"])
            assert service.stop() == 0, service.log.read_text()


def test_jobs_that_cannot_be_asked_for_let_nobody_go(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with ApiServer() as server:
        server.jobs, server.refuse = [job("t", ("Complete", "True"))], {JOBS: 403}
        settings = {
            "mode": "controller",
            "deployment": NAME,
            "namespace": NAMESPACE,
            "trainer_jobs": TRAINER,
        }
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            eventually(lambda: (service.metric(autoscaler_metrics.AUTOSCALER_FAILURES) or 0) >= 2)
            assert server.replicas > 0
            assert (
                "cannot list Jobs: the service account may not; grant it" in service.log.read_text()
            )
            server.refuse = {}
            eventually(lambda: server.replicas == 0)
            assert service.stop() == 0
