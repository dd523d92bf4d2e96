"""The real process: it measures pages, decides, and tells KEDA, an HPA or the (stand-in) API server."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from rollcast.connections.port_files import port_file, publish_port, read_port
from rollcast.local.ports import free_port
from rollcast.telemetry import names
from rollcast.telemetry.prometheus_reader import parse_page
from testkit.forecaster.prometheus_server import NEEDS_PROMETHEUS, prometheus
from testkit.forked_programs import ForkedPrograms
from tests.autoscaler.api_server import HPAS, JOBS, NAME, NAMESPACE, PODS, SCALE, ApiServer, hpa, job
from tests.autoscaler.keda import Keda, eventually
from tests.autoscaler.pages import RUN, Fleet, Page

TRAINER = "app.kubernetes.io/instance=demo,app.kubernetes.io/component=trainer"
SERVICES = Path(__file__).parents[2] / "services"
PAGES = httpx.Client(timeout=10.0, limits=httpx.Limits(max_keepalive_connections=0))
"""Made once: a client of its own for each look at a page spends 20 ms on TLS that nobody asks for."""
QUICK = {
    "http_port": 0,
    "grpc_port": 0,
    "every_seconds": 0.1,
    "window_seconds": 1.0,
    "start_up_seconds": 0.1,
    "lower_after_seconds": 1.5,
    "lower_every_seconds": 0.5,
    "stale_seconds": 1.0,
    "hpa_tolerance": 0.0,
    "most": 8,
}


class Service:
    """The process, and what it serves."""

    def __init__(
        self, folder: Path, services: ForkedPrograms | None, settings: dict[str, Any], environment: dict[str, str]
    ) -> None:
        self.folder = folder / RUN
        config = folder / "run.yaml"
        config.write_text(
            yaml.safe_dump(
                {
                    "run": RUN,
                    "folder": str(folder),
                    "model": {"path": "m", "max_length": 4096},
                    "recipe": {
                        "prompts_per_step": 8,
                        "rollouts_per_prompt": 8,
                        "max_prompt_tokens": 64,
                        "max_completion_tokens": 1024,
                        "length_control": {"kind": "none"},
                    },
                    "tasks": {"evaluation": {"rollouts_per_prompt": 8}},
                    "generator": {"slots": 32},
                    "autoscaler": QUICK | settings,
                }
            )
        )
        self.log = folder / "autoscaler.log"
        arguments = ["--config", str(config)]
        if services is not None:
            self.process: subprocess.Popen[bytes] = services.start(
                "rollcast.autoscaler", arguments, self.log, environment
            )
            return
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rollcast.autoscaler", *arguments],
                env={**os.environ, "PYTHONPATH": str(SERVICES), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def port(self, name: str = "autoscaler") -> int:
        file = port_file(self.folder, name)
        eventually(lambda: file.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.log.read_text()
        return read_port(file)

    def get(self, path: str) -> httpx.Response:
        return PAGES.get(f"http://127.0.0.1:{self.port()}{path}")

    def metric(self, metric: names.Metric) -> float | None:
        values = [sample.value for sample in parse_page(self.get("/metrics").text) if sample.name == metric.name]
        return values[0] if values else None

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


@contextmanager
def running(
    folder: Path, services: ForkedPrograms | None, settings: dict[str, Any], **environment: str
) -> Iterator[Service]:
    """services: what it is forked of; None = it is started as a program."""
    service = Service(folder, services, settings, environment)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait(10)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Two generators of 400 tokens a second, a trainer that consumes 1,600."""
    with ExitStack() as stack:
        trainer, *generators = (stack.enter_context(Page()) for _ in range(3))
        publish_port(tmp_path / RUN, "trainer", trainer.port)
        for number, page in enumerate(generators):
            publish_port(tmp_path / RUN, f"g{number}", page.port)
        yield stack.enter_context(Fleet(trainer, generators, need=1_600.0, each=400.0, slots=32))


def about(number: int) -> Callable[[float | None], bool]:
    """The pages are read on a busy machine: one more may be asked for."""
    return lambda value: value is not None and number <= value <= number + 1


def test_keda_is_told_what_a_starved_trainer_needs(tmp_path: Path, fleet: Fleet) -> None:
    with running(tmp_path, None, {"mode": "keda"}) as service:
        keda = Keda(service.port("autoscaler-grpc"))
        try:
            keda.follow()
            four = about(4)  # 1,600 tokens a second at 400 of each
            eventually(lambda: service.metric(names.GENERATORS_DESIRED) is not None and four(keda.desired()), 40)
            assert set(keda.told) == {True}
            assert service.get("/healthz").text == "ok\n"
            assert "tokens/s needed" in service.get("/readyz").text
            assert service.metric(names.AUTOSCALER_MEASURED) == 1.0
        finally:
            keda.close()
        assert service.stop() == 0, service.log.read_text()


def test_what_can_no_longer_be_measured_holds_the_number_and_says_so(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with running(tmp_path, services, {"mode": "hpa"}) as service:
        eventually(lambda: about(4)(service.metric(names.GENERATORS_DESIRED)), 40)
        number = service.metric(names.GENERATORS_DESIRED)
        port_file(tmp_path / RUN, "trainer").unlink()
        eventually(lambda: service.metric(names.AUTOSCALER_MEASURED) == 0.0)
        eventually(lambda: "holding" in service.get("/readyz").text)
        time.sleep(2.5)
        assert service.metric(names.GENERATORS_DESIRED) == number
        assert not port_file(tmp_path / RUN, "autoscaler-grpc").exists(), "only KEDA is served gRPC"
        assert service.stop() == 0


@NEEDS_PROMETHEUS
def test_a_real_prometheus_tells_the_same(tmp_path: Path, services: ForkedPrograms, fleet: Fleet) -> None:
    ports = [read_port(port_file(tmp_path / RUN, name)) for name in ("trainer", "g0", "g1")]
    source = {"kind": "prometheus", "url": f"http://127.0.0.1:{(port := free_port('127.0.0.1'))}"}
    settings = {"mode": "hpa", "source": source, "window_seconds": 4.0, "every_seconds": 0.5}
    with prometheus(tmp_path, port, ports), running(tmp_path, services, settings) as service:
        eventually(lambda: about(4)(service.metric(names.GENERATORS_DESIRED)), 60)
        assert service.stop() == 0, service.log.read_text()


def test_the_controller_scales_and_marks_pods_before_it_lowers(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.need = 1_600.0
    with ApiServer() as server:
        server.add_pod("g0", "10.1.0.1")
        server.add_pod("g1", "10.1.0.2")
        server.replicas = 2
        # Half of a window is measured before anything is decided: of a second that is a few steps, which overshoots.
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE, "window_seconds": 4.0}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
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
                marks = [place for place, path in enumerate(log) if path in (f"{PODS}/g0", f"{PODS}/g1")]
                assert marks
                assert min(marks) < lowered
                assert int(server.costs()["g1"]) < int(server.costs()["g0"])
            assert service.stop() == 0, service.log.read_text()


def test_the_controller_refuses_to_start_beside_an_hpa(tmp_path: Path, services: ForkedPrograms) -> None:
    with ApiServer() as server:
        server.hpas = [hpa("keda-hpa-generators", NAME)]
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE}
        with running(tmp_path, None, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            assert service.process.wait(60) == 2
        said = service.log.read_text().strip()
        assert said.count("\n") == 0, said
        assert f"HorizontalPodAutoscaler keda-hpa-generators scales Deployment {NAME} too; delete it" in said
        assert server.patches() == []

        server.hpas, server.refuse = [], {HPAS: 403}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            assert service.process.wait(60) == 2
        assert "cannot list HPAs: the service account may not; grant it" in service.log.read_text()


def test_the_controller_lets_every_generator_go_when_the_run_has_ended_and_asks_anew_for_another(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with ApiServer() as server:
        server.replicas = 2
        server.jobs = [job("trainer-1"), job("ranks", ("Complete", "True"), component="test-ranks")]
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE, "trainer_jobs": TRAINER}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            eventually(lambda: about(4)(server.replicas), 40)
            server.jobs[0] = job("trainer-1", ("Complete", "True"))
            eventually(lambda: server.replicas == 0)
            assert service.metric(names.GENERATORS_DESIRED) == 0.0
            assert "the run has ended" in service.get("/readyz").text
            server.jobs = []  # removed in time
            time.sleep(1.0)
            assert server.replicas == 0
            server.jobs = [job("trainer-2")]
            eventually(lambda: server.replicas >= 1)
            assert service.stop() == 0, service.log.read_text()


def test_keda_hears_from_the_first_answer_that_the_run_has_ended(tmp_path: Path, services: ForkedPrograms) -> None:
    """A restarted autoscaler must not wake generators: KEDA asks as soon as it is served."""
    with ApiServer() as server:
        server.jobs, server.replicas = [job("t", ("Complete", "True"))], 0
        settings = {"mode": "keda", "deployment": NAME, "namespace": NAMESPACE, "trainer_jobs": TRAINER}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
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
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            if mode == "keda":
                keda = Keda(service.port("autoscaler-grpc"))
                try:
                    until = time.monotonic() + 2.0  # some turns, and longer than the measurements may be away
                    while time.monotonic() < until:
                        assert keda.desired() == 5
                finally:
                    keda.close()
            assert service.metric(names.GENERATORS_DESIRED) == 5.0
            assert "holding 5" in service.get("/readyz").text
            assert server.patches() == []
            assert service.stop() == 0, service.log.read_text()


def test_without_a_deployment_the_generators_there_are_the_number_before_anything_was_measured(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    with running(tmp_path, services, {"mode": "keda", "window_seconds": 600.0}) as service:
        keda = Keda(service.port("autoscaler-grpc"))
        try:
            eventually(lambda: service.metric(names.GENERATORS_DESIRED) is not None)
            assert keda.desired() == 2
            assert service.metric(names.AUTOSCALER_MEASURED) == 0.0
        finally:
            keda.close()
        assert service.stop() == 0, service.log.read_text()


def test_a_deployment_that_cannot_be_asked_is_waited_for_and_generators_seen_do_not_stand_for_it(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    """Five are asked for, two have started."""
    with ApiServer() as server:
        server.replicas, server.refuse = 5, {SCALE: 500}
        settings = {"mode": "hpa", "deployment": NAME, "namespace": NAMESPACE, "window_seconds": 600.0}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            eventually(lambda: (service.metric(names.AUTOSCALER_FAILURES) or 0) >= 5)
            assert service.metric(names.GENERATORS_DESIRED) is None
            assert "no number yet" in service.get("/readyz").text
            server.refuse = {}
            eventually(lambda: service.metric(names.GENERATORS_DESIRED) is not None)
            assert service.metric(names.GENERATORS_DESIRED) == 5.0
            assert service.stop() == 0, service.log.read_text()


def test_an_autoscaler_that_starts_in_the_middle_of_a_run_measures_at_once(
    tmp_path: Path, services: ForkedPrograms
) -> None:
    """k + 1 steps of this trainer last three minutes; its pipeline has long been full."""
    with ExitStack() as stack:
        trainer, generator = (stack.enter_context(Page()) for _ in range(2))
        publish_port(tmp_path / RUN, "trainer", trainer.port)
        publish_port(tmp_path / RUN, "g0", generator.port)
        stack.enter_context(Fleet(trainer, [generator], need=200.0, each=400.0, slots=32, steps_per_second=0.05))
        service = stack.enter_context(running(tmp_path, services, {"mode": "hpa"}))
        eventually(lambda: service.metric(names.AUTOSCALER_MEASURED) == 1.0)
        assert service.stop() == 0, service.log.read_text()


def test_an_autoscaler_that_starts_beside_a_run_at_work_lets_nobody_go_to_find_out_what_one_before_knew(
    tmp_path: Path, services: ForkedPrograms, fleet: Fleet
) -> None:
    """Slots are free; how many generators would do is not known to it before the trainer waits."""
    fleet.need = 300.0
    with ApiServer() as server:
        server.replicas = 2
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            eventually(lambda: service.metric(names.AUTOSCALER_MEASURED) == 1.0)
            time.sleep(4.0)  # a fall waits 1.5 s
            assert "not known since the autoscaler's start" in service.get("/readyz").text
            assert service.stop() == 0, service.log.read_text()
        assert server.replicas == 2
        assert SCALE not in server.patches()


def test_jobs_that_cannot_be_asked_for_let_nobody_go(tmp_path: Path, services: ForkedPrograms, fleet: Fleet) -> None:
    with ApiServer() as server:
        server.jobs, server.refuse = [job("t", ("Complete", "True"))], {JOBS: 403}
        settings = {"mode": "controller", "deployment": NAME, "namespace": NAMESPACE, "trainer_jobs": TRAINER}
        with running(tmp_path, services, settings, KUBECONFIG=str(server.kubeconfig(tmp_path))) as service:
            eventually(lambda: (service.metric(names.AUTOSCALER_FAILURES) or 0) >= 2)
            assert server.replicas > 0
            assert "cannot list Jobs: the service account may not; grant it" in service.log.read_text()
            server.refuse = {}
            eventually(lambda: server.replicas == 0)
            assert service.stop() == 0
