"""The real Kubernetes client against a stand-in for the API server (see `api_server`; there is no
cluster here).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kubernetes")

from rollcast.autoscaler.api_server import KubernetesApiError, connect
from rollcast.autoscaler.deployment import Deployment
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from tests.autoscaler.api_server import (
    EVENTS,
    HPAS,
    JOBS,
    NAME,
    NAMESPACE,
    PODS,
    SCALE,
    SCALED_OBJECTS,
    UID,
    ApiServer,
    hpa,
    job,
    scaled_object,
)

TRAINER = "app.kubernetes.io/instance=demo,app.kubernetes.io/component=trainer"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def deployment(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
    return Deployment(connect("autoscaler.deployment"), NAMESPACE, NAME)


def test_the_scale_is_read_and_set(server: ApiServer, deployment: Deployment) -> None:
    assert deployment.replicas() == 3
    deployment.scale(7)
    assert server.replicas == 7
    assert deployment.replicas() == 7
    server.replicas = 0
    assert deployment.replicas() == 0


def test_the_idlest_pods_are_marked_and_only_what_changed_is_written(
    server: ApiServer, deployment: Deployment
) -> None:
    inflight = {"pod-0": 500.7, "10.0.0.1": 3e9, "pod-9": 4.0}
    assert deployment.prefer_idlest(inflight) == 2
    assert server.costs() == {"pod-0": "500", "pod-1": str(2**31 - 1)}, (
        "pod-2 does no work that is known: cost 0"
    )
    assert deployment.prefer_idlest(inflight) == 0
    assert deployment.prefer_idlest({"pod-0": 500.0, "pod-1": 2.0, "pod-2": 9.0}) == 2
    assert server.costs() == {"pod-0": "500", "pod-1": "2", "pod-2": "9"}
    assert server.patches() == [f"{PODS}/pod-0", f"{PODS}/pod-1", f"{PODS}/pod-1", f"{PODS}/pod-2"]


LEFT = (
    "Container trainer for pod ml/demo-0-xyz12 failed with exit code 76 matching FailJob rule at "
    "index 0"
)
"""As Kubernetes' Job controller says it."""


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], None),
        ([job("other", ("Complete", "True"), component="test-ranks")], None),
        ([job("a")], False),
        ([job("a", ("Complete", "False"))], False),
        ([job("a", ("Failed", "True"))], False),
        ([job("a", ("SuccessCriteriaMet", "True"), ("Complete", "True"))], True),
        ([job(name, ("Complete", "True")) for name in "abc"], True),
        ([job("a", ("Complete", "True")), job("b", ("Complete", "True")), job("c")], False),
        ([job("a", ("Failed", "True", LEFT)), job("b", ("Complete", "True"))], True),
        ([job("a", ("Failed", "True", LEFT)), job("b")], False),
        ([job("a", ("Failed", "True", LEFT))], None),
        (
            [job("a", ("Failed", "True", LEFT.replace("76", "2"))), job("b", ("Complete", "True"))],
            False,
        ),
    ],
)
def test_a_run_has_ended_when_every_job_of_its_trainer_is_complete(
    server: ApiServer, deployment: Deployment, jobs: list[dict[str, object]], expected: bool | None
) -> None:
    server.jobs = jobs
    assert deployment.jobs_are_complete(TRAINER) is expected


def test_an_event_is_the_deployments_and_kubernetes_takes_it(
    server: ApiServer, deployment: Deployment
) -> None:
    deployment.tell("GeneratorsHeld", "holding 3: " + "x" * 2_000, warning=True)
    deployment.tell("GeneratorsRaised", "raising to 4: the trainer waits", warning=False)
    held, raised = server.events
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": NAME,
        "namespace": NAMESPACE,
        "uid": UID,
    }
    assert held["involvedObject"] == raised["involvedObject"] == reference, (
        "kubectl describe looks for the uid"
    )
    assert (held["type"], raised["type"]) == ("Warning", "Normal")
    assert raised["message"] == "raising to 4: the trainer waits"
    assert held["metadata"]["name"] != raised["metadata"]["name"]
    server.refuse = {EVENTS: 403}
    with pytest.raises(
        KubernetesApiError, match="cannot write an event: the service account may not; grant it"
    ):
        deployment.tell("GeneratorsHeld", "x", warning=True)


def test_pods_that_are_there_may_be_fewer_than_those_asked_for(
    server: ApiServer, deployment: Deployment
) -> None:
    server.replicas = 9
    assert deployment.pods_there() == len(server.pods) == 4
    assert deployment.replicas() == 9


def test_a_pod_that_is_gone_by_then_is_no_failure(
    server: ApiServer, deployment: Deployment
) -> None:
    server.refuse = {f"{PODS}/pod-0": 404}
    assert deployment.prefer_idlest({"pod-0": 1.0, "pod-1": 2.0}) == 1
    assert server.costs() == {"pod-1": "2"}


@pytest.mark.parametrize(
    ("hpas", "scaled", "expected"),
    [
        ([], None, []),
        ([], [], []),
        ([hpa("other", "web"), hpa("job", NAME, "StatefulSet")], [scaled_object("o", "web")], []),
        ([hpa("a", "x"), hpa("b", "y"), hpa("ours", NAME)], None, ["HorizontalPodAutoscaler ours"]),
        ([], [scaled_object("s", NAME)], ["ScaledObject s"]),
        ([], [scaled_object("s", NAME, kind="StatefulSet")], []),
        (
            [hpa("keda-hpa-s", NAME)],
            [scaled_object("s", NAME, kind="Deployment")],
            ["HorizontalPodAutoscaler keda-hpa-s", "ScaledObject s"],
        ),
    ],
)
def test_who_else_scales_it_is_found(
    server: ApiServer,
    deployment: Deployment,
    hpas: list[object],
    scaled: list[object] | None,
    expected: list[str],
) -> None:
    server.hpas, server.scaled_objects = hpas, scaled  # type: ignore[assignment]
    assert deployment.rivals() == expected


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        (SCALE, 403, "cannot read the Deployment's scale: the service account may not; grant it"),
        (SCALE, 404, "not found in namespace train"),
        (SCALE, 500, "the API server answered 500"),
        (HPAS, 403, "cannot list HPAs: the service account may not"),
        (SCALED_OBJECTS, 403, "cannot list ScaledObjects: the service account may not"),
        (PODS, 403, "cannot list pods: the service account may not"),
        (JOBS, 403, "cannot list Jobs: the service account may not"),
    ],
)
def test_what_the_server_refuses_is_one_sentence(
    server: ApiServer, deployment: Deployment, path: str, status: int, message: str
) -> None:
    server.refuse = {path: status}

    def do_everything() -> None:
        deployment.replicas()
        deployment.rivals()
        deployment.prefer_idlest({})
        deployment.jobs_are_complete(TRAINER)

    with pytest.raises(KubernetesApiError, match=message):
        do_everything()


def test_a_server_that_is_not_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused, ApiServer() as server:
        unused.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        with pytest.raises(KubernetesApiError, match="cannot scale the Deployment"):
            Deployment(connect("autoscaler.deployment"), NAMESPACE, NAME).scale(2)


def test_outside_of_a_cluster_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="no access to Kubernetes"):
        connect("autoscaler.deployment")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"least": 5, "most": 4}, "autoscaler.least = 5 is wrong: exceeds most, 4"),
        ({"mode": "controller"}, "autoscaler.mode = 'controller' is wrong: needs deployment"),
        ({"least": 0}, "autoscaler.least"),
        (
            {"trainer_jobs": "a=b"},
            "autoscaler.trainer_jobs = 'a=b' is wrong: needs autoscaler.deployment",
        ),
        ({"deployment": "No_Name"}, "autoscaler.deployment"),
        ({"source": {"kind": "prometheus"}}, "url is missing"),
        ({"mode": "magic"}, "autoscaler.mode"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_run_config(
            {"run": "demo", "model": {"path": "m"}, "autoscaler": settings}, source="run.yaml"
        )
