"""The real process where it knows little: as it starts, next to another scaler, at the end of a
run.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollcast.connections.port_files import port_file, publish_port, read_port
from rollcast.local.ports import free_port
from rollcast.telemetry import autoscaler_metrics
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, prometheus
from testkit.forked_programs import ForkedPrograms
from tests.autoscaler.api_server import HPAS, NAME, NAMESPACE, SCALE, ApiServer, hpa, job
from tests.autoscaler.keda import Keda, eventually
from tests.autoscaler.pages import RUN, Fleet, Page
from tests.autoscaler.service import TRAINER, about, running


@NEEDS_PROMETHEUS
def test_a_real_prometheus_tells_the_same(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    ports = [read_port(port_file(tmp_path / RUN, name)) for name in ("trainer", "g0", "g1")]
    source = {"kind": "prometheus", "url": f"http://127.0.0.1:{(port := free_port('127.0.0.1'))}"}
    settings = {"mode": "hpa", "source": source, "window_seconds": 4.0, "every_seconds": 0.5}
    with prometheus(tmp_path, port, ports), running(tmp_path, services, settings) as service:
        eventually(lambda: about(4)(service.metric(autoscaler_metrics.GENERATORS_DESIRED)), 60)
        assert service.stop() == 0, service.log.read_text()


def test_the_controller_refuses_to_start_beside_an_hpa(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    with ApiServer() as server:
        server.hpas = [hpa("keda-hpa-generators", NAME)]
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE}
        with running(
            tmp_path, None, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            assert service.process.wait(60) == 2
        said = service.log.read_text().strip()
        assert said.count("\n") == 0, said
        assert (
            f"HorizontalPodAutoscaler keda-hpa-generators scales Deployment {NAME} too; delete it"
            in said
        )
        assert server.patches() == []

        server.hpas, server.refuse = [], {HPAS: 403}
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            assert service.process.wait(60) == 2
        assert "cannot list HPAs: the service account may not; grant it" in service.log.read_text()


def test_the_controller_lets_every_generator_go_when_the_run_has_ended_and_asks_anew_for_another(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with ApiServer() as server:
        server.replicas = 2
        server.jobs = [job("trainer-1"), job("ranks", ("Complete", "True"), component="test-ranks")]
        settings = {
            "mode": "controller",
            "deployment": NAME,
            "namespace": NAMESPACE,
            "trainer_jobs": TRAINER,
        }
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            eventually(lambda: about(4)(server.replicas), 40)
            server.jobs[0] = job("trainer-1", ("Complete", "True"))
            eventually(lambda: server.replicas == 0)
            assert service.metric(autoscaler_metrics.GENERATORS_DESIRED) == 0.0
            assert "the run has ended" in service.get("/readyz").text
            server.jobs = []  # removed in time
            time.sleep(1.0)
            assert server.replicas == 0
            server.jobs = [job("trainer-2")]
            eventually(lambda: server.replicas >= 1)
            assert service.stop() == 0, service.log.read_text()


def test_keda_hears_from_the_first_answer_that_the_run_has_ended(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """A restarted autoscaler must not wake generators: KEDA asks as soon as it is served."""
    with ApiServer() as server:
        server.jobs, server.replicas = [job("t", ("Complete", "True"))], 0
        settings = {
            "mode": "keda",
            "deployment": NAME,
            "namespace": NAMESPACE,
            "trainer_jobs": TRAINER,
        }
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            keda = Keda(service.port("autoscaler-grpc"))
            try:
                keda.follow()
                eventually(lambda: keda.told)
                time.sleep(0.5)  # some turns
                assert set(keda.told) == {False}
                assert keda.desired() == 0
                server.jobs = [job("u")]
                eventually(lambda: keda.told[-1] is True)
                assert keda.desired() == 1, "the least"
            finally:
                keda.close()
            assert service.stop() == 0, service.log.read_text()


@pytest.mark.parametrize("mode", ["keda", "hpa"])
def test_the_number_that_the_deployment_has_is_told_from_the_first_answer(
    tmp_path: Path, services: ForkedPrograms, mode: str
) -> None:
    """There is neither a trainer nor a generator to read: a restarted autoscaler knows no more."""
    with ApiServer() as server:
        server.replicas = 5
        settings = {"mode": mode, "deployment": NAME, "namespace": NAMESPACE}
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            if mode == "keda":
                keda = Keda(service.port("autoscaler-grpc"))
                try:
                    until = (
                        time.monotonic() + 2.0
                    )  # some turns, and longer than the measurements may be away
                    while time.monotonic() < until:
                        assert keda.desired() == 5
                finally:
                    keda.close()
            assert service.metric(autoscaler_metrics.GENERATORS_DESIRED) == 5.0
            assert "holding 5" in service.get("/readyz").text
            assert server.patches() == []
            assert service.stop() == 0, service.log.read_text()


def test_without_a_deployment_the_generators_there_are_the_number_before_anything_was_measured(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with running(tmp_path, services, {"mode": "keda", "window_seconds": 600.0}) as service:
        keda = Keda(service.port("autoscaler-grpc"))
        try:
            eventually(lambda: service.metric(autoscaler_metrics.GENERATORS_DESIRED) is not None)
            assert keda.desired() == 2
            assert service.metric(autoscaler_metrics.AUTOSCALER_MEASURED) == 0.0
        finally:
            keda.close()
        assert service.stop() == 0, service.log.read_text()


def test_a_deployment_that_cannot_be_asked_is_waited_for_and_generators_seen_do_not_stand_for_it(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    """Five are asked for, two have started."""
    with ApiServer() as server:
        server.replicas, server.refuse = 5, {SCALE: 500}
        settings = {
            "mode": "hpa",
            "deployment": NAME,
            "namespace": NAMESPACE,
            "window_seconds": 600.0,
        }
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            eventually(lambda: (service.metric(autoscaler_metrics.AUTOSCALER_FAILURES) or 0) >= 5)
            assert service.metric(autoscaler_metrics.GENERATORS_DESIRED) is None
            assert "no number yet" in service.get("/readyz").text
            server.refuse = {}
            eventually(lambda: service.metric(autoscaler_metrics.GENERATORS_DESIRED) is not None)
            assert service.metric(autoscaler_metrics.GENERATORS_DESIRED) == 5.0
            assert service.stop() == 0, service.log.read_text()


def test_an_autoscaler_that_starts_in_the_middle_of_a_run_measures_at_once(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """k + 1 steps of this trainer last three minutes; its pipeline has long been full."""
    with ExitStack() as stack:
        trainer, generator = (stack.enter_context(Page()) for _ in range(2))
        publish_port(tmp_path / RUN, "trainer", trainer.port)
        publish_port(tmp_path / RUN, "g0", generator.port)
        stack.enter_context(
            Fleet(trainer, [generator], need=200.0, each=400.0, slots=32, steps_per_second=0.05)
        )
        service = stack.enter_context(running(tmp_path, services, {"mode": "hpa"}))
        eventually(lambda: service.metric(autoscaler_metrics.AUTOSCALER_MEASURED) == 1.0)
        assert service.stop() == 0, service.log.read_text()


def test_an_autoscaler_that_starts_beside_a_run_at_work_lets_no_generator_go(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    """Slots are free; how many generators would do is not known to it before the trainer waits."""
    fleet.need = 300.0
    with ApiServer() as server:
        server.replicas = 2
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE}
        with running(
            tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))
        ) as service:
            eventually(lambda: service.metric(autoscaler_metrics.AUTOSCALER_MEASURED) == 1.0)
            time.sleep(4.0)  # a fall waits 1.5 s
            assert "not known since the autoscaler's start" in service.get("/readyz").text
            assert service.stop() == 0, service.log.read_text()
        assert server.replicas == 2
        assert SCALE not in server.patches()
