"""Before an upgrade and a rollback, Jobs of trainers that left for another one are deleted; what
Helm makes trains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from testkit.plain_manifests import manifest_texts
from tests.autoscaler.api_server import JOBS, NAMESPACE, ApiServer
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import CPU, Object, merged, of_kind, pod_of, render
from tests.chart.value_sets import VALUE_SETS, WITH_TRAINER

HOOK = "pre-upgrade,pre-rollback"


def of_hook(objects: list[Object]) -> dict[str, Object]:
    """Kind -> the objects that Helm makes before an upgrade and a rollback alone."""
    return {
        item["kind"]: item
        for item in objects
        if item["metadata"].get("annotations", {}).get("helm.sh/hook") == HOOK
    }


def ended(item: Object, code: int | None) -> Object:
    """This Job, at work or failed because its trainer ended with that code, in the words of
    Kubernetes' controller.
    """
    name = item["metadata"]["name"]
    message = (
        f"Container trainer for pod {NAMESPACE}/{name}-0-x failed with exit code {code} matching "
        "FailJob rule"
    )
    condition = {
        "type": "Failed",
        "status": "True",
        "reason": "PodFailurePolicy",
        "message": f"{message} at index 0",
    }
    return {**item, "status": {"conditions": [] if code is None else [condition]}}


@pytest.mark.parametrize("name", WITH_TRAINER)
def test_the_hook_has_two_rights_and_comes_after_the_check(name: str) -> None:
    objects = render(VALUE_SETS[name])
    hooks = of_hook(objects)
    job = hooks.pop("Job")
    assert {"ServiceAccount", "Role", "RoleBinding"} <= set(hooks)
    assert all(
        int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0 for item in hooks.values()
    )
    assert hooks["Role"]["rules"] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "delete"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["delete"]},
    ]
    assert hooks["RoleBinding"]["roleRef"]["name"] == hooks["Role"]["metadata"]["name"]
    account = hooks["ServiceAccount"]["metadata"]["name"]
    assert [subject["name"] for subject in hooks["RoleBinding"]["subjects"]] == [account]
    assert pod_of(objects, "left-trainers").spec["serviceAccountName"] == account
    check = next(item for item in of_kind(objects, "Job", "-check"))
    assert check["metadata"]["name"] < job["metadata"]["name"], (
        "of the same weight Helm takes them by name"
    )
    annotations = job["metadata"]["annotations"]
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    assert "hook-succeeded" in annotations["helm.sh/hook-output-log-policy"], (
        "what it could not do is shown"
    )


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_only_trainers_that_left_for_another_one_are_deleted(
    controller: str, tmp_path: Path
) -> None:
    """The rendered command, as a process, against a stand-in for the API server."""
    base = merged(CPU, {"trainer": {"controller": controller}})
    release = render(base, namespace=NAMESPACE)

    def trainer(steps: int, code: int | None, name: str = "demo") -> list[Object]:
        values = merged(base, {"config": {"budget": {"steps": steps}}})
        made = render(values, name=name, namespace=NAMESPACE)
        if controller == "job":
            (item,) = [
                item for item in of_kind(made, "Job") if "-trainer-" in item["metadata"]["name"]
            ]
            return [ended({"kind": "Job", **item}, code)]
        (item,) = of_kind(made, "JobSet")
        (job,) = item["spec"]["replicatedJobs"]
        metadata = {
            "name": f"{item['metadata']['name']}-trainer-0",
            "ownerReferences": [{"kind": "JobSet", "name": item["metadata"]["name"]}],
            **job["template"]["metadata"],
        }
        return [item, ended({"kind": "Job", "metadata": metadata}, code)]

    left, stay = (
        trainer(300, 76) + trainer(400, 76),
        trainer(500, None) + trainer(600, 2) + trainer(300, 76, "other"),
    )
    with ApiServer() as server, LocalCluster(release, tmp_path) as cluster:
        server.jobsets = []
        for item in (*left, *stay):
            (server.jobs if item["kind"] == "Job" else server.jobsets).append(item)
        pod = cluster.pod("left-trainers")
        (container,) = pod.template.spec["containers"]
        command = [*container["command"], *container["args"]]
        given = {"KUBECONFIG": str(server.kubeconfig(tmp_path))}
        assert pod.run("left", command, given).wait(60) == 0, pod.log("left").read_text()
        top = "Job" if controller == "job" else "JobSet"
        there: list[dict[str, Any]] = server.jobs if controller == "job" else server.jobsets
        expected = sorted(item["metadata"]["name"] for item in stay if item["kind"] == top)
        assert sorted(item["metadata"]["name"] for item in there) == expected
        said = pod.log("left").read_text()
        assert set(said.splitlines()) == {
            f"deleted, since its trainer had left for another one: {top} {item['metadata']['name']}"
            for item in left
            if item["kind"] == top
        }


def test_an_api_server_that_refuses_keeps_no_upgrade_from_its_work(tmp_path: Path) -> None:
    release = render(CPU, namespace=NAMESPACE)
    with ApiServer() as server, LocalCluster(release, tmp_path) as cluster:
        server.refuse = {JOBS: 403}
        pod = cluster.pod("left-trainers")
        (container,) = pod.template.spec["containers"]
        command = [*container["command"], *container["args"]]
        assert (
            pod.run("refused", command, {"KUBECONFIG": str(server.kubeconfig(tmp_path))}).wait(60)
            == 0
        )
        assert pod.log("refused").read_text() == (
            "warning: cannot list the trainer's Jobs: the service account may not; grant it; if "
            "nothing trains after "
            "this, delete the trainer's Job that failed and upgrade again\n"
        )


def test_who_may_not_make_roles_can_do_without() -> None:
    objects = render(
        merged(CPU, {"hooks": {"deleteTrainers": False, "dryRun": False, "watchImage": False}})
    )
    assert not of_kind(objects, "Role")
    assert not of_kind(objects, "RoleBinding")
    assert {item["metadata"]["name"] for item in of_kind(objects, "ConfigMap", "-accepted")}


def test_manifests_without_helm_name_the_job_that_they_have() -> None:
    """Nobody would call the hook; which Job is there, trainers must know all the same."""
    for text in manifest_texts().values():
        assert "-left-trainers" not in text
        assert text.count("accepted-trainer: ") == 1
        assert "helm.sh/hook" not in text
