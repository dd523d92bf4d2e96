"""The Job of a trainer that was moved is made again, and no other; against a stand-in for the API
server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from rollcast.autoscaler.api_server import KubernetesApiError, connect
from rollcast.autoscaler.deployment import Deployment
from rollcast.autoscaler.moved_trainer import WAIT_SECONDS, MovedTrainer, as_new
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from tests.autoscaler.api_server import NAME, NAMESPACE, RECORD, ApiServer, job
from tests.autoscaler.watching import watching

LABELS = "app.kubernetes.io/instance=demo,app.kubernetes.io/component=trainer"
OWN = {
    "controller-uid": "u",
    "batch.kubernetes.io/controller-uid": "u",
    "batch.kubernetes.io/job-name": "t",
}


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def deployment(server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
    return Deployment(connect("autoscaler.deployment"), NAMESPACE, NAME)


@pytest.fixture
def moved(deployment: Deployment) -> MovedTrainer:
    return MovedTrainer(deployment, LABELS)


def trainer(
    *, pods: int = 2, active: int = 2, manager: str = "helm", operation: str = "Apply"
) -> dict[str, Any]:
    """A Job as the API server returns it: with its own fields, and defaults filled in."""
    found = job("t")
    labels = {"app.kubernetes.io/component": "trainer", **OWN, "job-name": "t"}
    managers = [{"manager": manager, "operation": operation}]
    managers.append(
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"}
    )
    found["metadata"] |= {
        "namespace": NAMESPACE,
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"meta.helm.sh/release-name": "demo"},
        "managedFields": managers,
    }
    found["spec"] = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 20,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "trainer"}]}},
    }
    found["status"] = {"active": active, "ready": active, "terminating": 0}
    return found


def looks(moved: MovedTrainer, start: float = 0.0) -> list[str | None]:
    """What the looks of a minute say, one every five seconds."""
    return [moved.look(start + seconds) for seconds in range(0, 60, 5)]


@pytest.mark.parametrize("operation", ["Apply", "Update"])
def test_each_move_costs_the_same_short_wait(
    server: ApiServer, moved: MovedTrainer, operation: str
) -> None:
    """Five moves: the Job controller's own wait would have grown to 160 s."""
    before = trainer(operation=operation)
    server.jobs = [before]
    for move in range(5):
        now = 1_000.0 * move
        server.jobs[0]["status"] = {"active": 2, "terminating": 0}
        assert moved.look(now) is None
        server.jobs[0]["status"] = {"active": 1, "terminating": 1}
        assert moved.look(now + 5) is None, "its pod writes a checkpoint"
        server.jobs[0]["status"] = {"active": 1, "terminating": 0}
        assert moved.look(now + 10) is None
        assert moved.look(now + 10 + WAIT_SECONDS) == "t"
        (again,) = server.jobs
        assert again["metadata"]["managedFields"] == [{"manager": "helm", "operation": operation}]
        for key in ("name", "namespace", "labels", "annotations"):
            assert again["metadata"][key] == before["metadata"][key]
        again, expected = copy.deepcopy(again["spec"]), copy.deepcopy(before["spec"])
        for spec in (again, expected):
            del spec["selector"], spec["template"]["metadata"]
        assert again == expected
        assert (
            server.jobs[0]["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
            == "trainer"
        )
    assert len([method for method, path in server.log if method == "DELETE"]) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"status": {"active": 2}},
        {"status": {"active": 1, "succeeded": 1}},
        {"status": {"active": 1, "failed": 1}},
        {"status": {"active": 1, "terminating": 1}},
        {"status": {"active": 1, "uncountedTerminatedPods": {"failed": ["x"]}}},
        {"status": {"active": 0, "conditions": [{"type": "Complete", "status": "True"}]}},
        {"status": {"active": 0, "conditions": [{"type": "FailureTarget", "status": "True"}]}},
        {"spec": {"suspend": True}},
        {"metadata": {"ownerReferences": [{"kind": "JobSet", "name": "t"}]}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {
            "metadata": {
                "labels": {**job("t")["metadata"]["labels"], "kueue.x-k8s.io/queue-name": "q"}
            }
        },
    ],
    ids=str,
)
def test_a_job_is_left_alone_unless_only_a_move_explains_what_is_missing(
    server: ApiServer, moved: MovedTrainer, change: dict[str, dict[str, Any]]
) -> None:
    server.jobs = [trainer()]
    assert moved.look(0.0) is None
    server.jobs[0]["status"] = {"active": 1, "terminating": 0}
    for part, fields in change.items():
        server.jobs[0][part] |= fields
    assert looks(moved, 1.0) == [None] * 12
    assert {method for method, _ in server.log} == {"GET"}


def test_failures_before_the_move_do_not_hinder_it(server: ApiServer, moved: MovedTrainer) -> None:
    server.jobs = [trainer(active=1)]
    server.jobs[0]["status"]["failed"] = 1
    assert looks(moved) == [None] * 12, "a failure: it waits"
    server.jobs[0]["status"] = {"active": 2, "failed": 1}
    assert moved.look(100.0) is None
    server.jobs[0]["status"] = {"active": 0, "failed": 1}
    assert looks(moved, 200.0).count("t") == 1, (
        "without pods afterwards it is not made again for ever"
    )


def test_two_jobs_are_an_upgrade(server: ApiServer, moved: MovedTrainer) -> None:
    other = trainer(active=0)
    other["metadata"]["name"] = "other"
    server.jobs = [trainer(active=0), other]
    assert looks(moved) == [None] * 12


def test_a_job_that_changed_meanwhile_is_not_deleted(
    server: ApiServer, moved: MovedTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.jobs = [trainer(active=1)]
    assert moved.look(0.0) is None
    answer = server.answer

    def changes_after_the_list(method: str, *call: Any) -> Any:
        if method == "DELETE":
            server.jobs[0]["metadata"]["resourceVersion"] = "8"
        return answer(method, *call)

    monkeypatch.setattr(server, "answer", changes_after_the_list)
    with pytest.raises(
        KubernetesApiError, match="cannot delete the trainer's Job t: the API server answered 409"
    ):
        moved.look(WAIT_SECONDS)
    assert len(server.jobs) == 1


def test_a_job_whose_deletion_was_not_answered_is_created(
    server: ApiServer, moved: MovedTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.jobs = [trainer(active=1)]
    assert moved.look(0.0) is None
    delete = server._delete_one

    def deletes_without_an_answer(*call: Any) -> Any:
        delete(*call)
        return 504, {}

    monkeypatch.setattr(server, "_delete_one", deletes_without_an_answer)
    with pytest.raises(KubernetesApiError, match="answered 504"):
        moved.look(WAIT_SECONDS)
    assert moved.look(WAIT_SECONDS + 5) == "t"
    assert [present["metadata"]["name"] for present in server.jobs] == ["t"]


def test_a_job_that_could_not_be_created_is_not_deleted(
    server: ApiServer, moved: MovedTrainer
) -> None:
    server.jobs = [trainer(active=1)]
    assert moved.look(0.0) is None
    server.job_dry_run = (403, {"kind": "Status", "message": "exceeded quota"})
    with pytest.raises(KubernetesApiError, match="cannot create the trainer's Job t again"):
        moved.look(WAIT_SECONDS)
    assert [found["metadata"]["name"] for found in server.jobs] == ["t"]


def test_a_job_that_could_not_be_created_is_created_later(
    server: ApiServer, moved: MovedTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.jobs = [trainer(active=1)]
    assert moved.look(0.0) is None
    monkeypatch.setattr(server, "_create_job", lambda *_: (500, {"reason": "InternalError"}))
    with pytest.raises(
        KubernetesApiError,
        match="cannot create the trainer's Job t again: the API server answered 500",
    ):
        moved.look(WAIT_SECONDS)
    assert server.jobs == []
    monkeypatch.undo()
    assert moved.look(WAIT_SECONDS + 5) == "t"
    assert [found["metadata"]["name"] for found in server.jobs] == ["t"]
    server.jobs[0]["status"] = {"active": 2}
    assert moved.look(100.0) is None


@pytest.mark.parametrize("killed_at", ["DELETE", "POST"])
def test_an_autoscaler_killed_between_deletion_and_creation_creates_the_job_at_its_next_start(
    server: ApiServer, deployment: Deployment, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    server.jobs = [trainer(active=1, operation="Update")]
    killed = MovedTrainer(deployment, LABELS)
    assert killed.look(0.0) is None
    answer = server.answer

    def dies(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        in_earnest = method == killed_at and "dryRun" not in query
        return (500, {}) if in_earnest else answer(method, path, query, body)

    monkeypatch.setattr(server, "answer", dies)
    with pytest.raises(KubernetesApiError):
        killed.look(WAIT_SECONDS)
    monkeypatch.undo()
    was_deleted = killed_at == "POST"
    assert bool(server.jobs) is not was_deleted
    assert "resourceVersion" not in server.recorded["job.json"]
    following = MovedTrainer(deployment, LABELS)
    assert following.look(0.0) == ("t" if was_deleted else None)
    assert [present["metadata"]["name"] for present in server.jobs] == ["t"]
    assert server.recorded == {}
    assert looks(following, 1.0).count("t") == (0 if was_deleted else 1), (
        "a Job without pods waits for its controller"
    )


@pytest.mark.parametrize("name", ["t", "other"])
def test_a_recorded_job_is_not_created_next_to_one_that_ended_or_replaced_it(
    server: ApiServer, moved: MovedTrainer, deployment: Deployment, name: str
) -> None:
    deployment.record_job(as_new(trainer()))
    server.jobs = [trainer()]
    server.jobs[0]["metadata"]["name"] = name
    if name == "t":
        server.jobs[0]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert moved.look(0.0) is None
    assert [present["metadata"]["name"] for present in server.jobs] == [name]
    assert server.recorded == {}


def test_a_job_that_cannot_be_recorded_is_not_deleted(
    server: ApiServer, moved: MovedTrainer
) -> None:
    server.jobs = [trainer(active=1)]
    assert moved.look(0.0) is None
    server.refuse = {RECORD: 403}
    with pytest.raises(KubernetesApiError, match="cannot record the trainer's Job in ConfigMap"):
        moved.look(WAIT_SECONDS)
    assert [present["metadata"]["name"] for present in server.jobs] == ["t"]


def test_the_autoscaler_says_so_in_an_event(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.jobs = [trainer(active=1)]
    loop, _ = watching(server, tmp_path, monkeypatch, "keda", replaced_jobs=LABELS)
    clock = [0.0]
    loop._clock = lambda: clock[0]
    loop.turn()
    assert not [event for event in server.events if event["reason"] == "TrainerReplaced"]
    clock[0] = WAIT_SECONDS
    loop.turn()
    (event,) = [event for event in server.events if event["reason"] == "TrainerReplaced"]
    assert event["message"].startswith("Job t was made again: its pod had left on request")
    loop.close()


def test_it_needs_the_deployment() -> None:
    settings = {"run": "demo", "model": {"path": "m"}, "autoscaler": {"replaced_jobs": "a=b"}}
    with pytest.raises(
        UserError, match=r"autoscaler.replaced_jobs = 'a=b' is wrong: needs autoscaler.deployment"
    ):
        parse_run_config(settings, source="run.yaml")
