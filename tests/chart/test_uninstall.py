"""After an uninstall no trainer of the release is left, whichever revision made it, and nobody
else's is touched.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from rollcast.autoscaler.old_trainers import LABELS
from testkit.plain_manifests import manifest_texts
from tests.autoscaler.api_server import JOBS, NAMESPACE, ApiServer
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import CPU, Object, merged, of_kind, one, pod_of, render
from tests.chart.value_sets import VALUE_SETS

REVISIONS: tuple[Object, ...] = (
    {},
    {"config": {"budget": {"steps": 500}}},
    {"nameOverride": "other"},
    {"fullnameOverride": "mine"},
    {
        "commonLabels": {"team": "rl"},
        "trainer": {"labels": {"kueue.x-k8s.io/queue-name": "research"}},
    },
    {"trainer": {"suspend": True, "nodes": 2}, "storage": {"accessMode": "ReadWriteMany"}},
)
"""Values of upgrades, each of which leads to another Job or to other labels of it."""


def of_uninstall(objects: list[Object]) -> dict[str, Object]:
    """Kind -> the objects that Helm makes when the release is gone."""
    found = [item for item in objects if _hook(item) == "post-delete"]
    assert len({item["kind"] for item in found}) == len(found)
    return {item["kind"]: item for item in found}


def before_it(objects: list[Object]) -> list[Object]:
    """What hooks make before an install or an upgrade.

    Helm 3.17 keeps all of it where a later hook fails.
    """
    return [item for item in objects if "pre-" in (_hook(item) or "")]


def _hook(item: Object) -> str | None:
    hook: str | None = item["metadata"].get("annotations", {}).get("helm.sh/hook")
    return hook


@pytest.mark.parametrize("name", VALUE_SETS)
def test_what_runs_after_an_uninstall_needs_nothing_of_the_release_and_may_do_one_thing(
    name: str,
) -> None:
    objects = render(VALUE_SETS[name])
    hooks = of_uninstall(objects)
    job = hooks.pop("Job")
    assert {"ServiceAccount", "Role", "RoleBinding"} <= set(hooks)
    for item in hooks.values():
        assert int(item["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0, "before the Job"
    for item in (job, *hooks.values()):
        policy = item["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        assert policy == "before-hook-creation,hook-succeeded", (
            "it leaves nothing itself, and its log where it failed"
        )
    assert hooks["Role"]["rules"][:2] == [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["deletecollection"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["deletecollection"]},
    ]
    granted = {
        (kind, name)
        for rule in hooks["Role"]["rules"][2:]
        for kind, name in itertools.product(rule["resources"], rule["resourceNames"])
        if rule["verbs"] == ["delete"]
    }
    assert {tuple(path_of(item).split("/")[-2:]) for item in before_it(objects)} <= granted
    account = hooks["ServiceAccount"]["metadata"]["name"]
    assert hooks["RoleBinding"]["roleRef"]["name"] == hooks["Role"]["metadata"]["name"]
    assert [subject["name"] for subject in hooks["RoleBinding"]["subjects"]] == [account]
    pod = pod_of(objects, "uninstall")
    assert pod.spec["serviceAccountName"] == account
    assert all("emptyDir" in volume for volume in pod.spec["volumes"])
    assert "secretKeyRef" not in str(pod.spec)
    assert "configMap" not in str(pod.spec)
    assert job["spec"]["activeDeadlineSeconds"] <= 60, (
        "an install that was refused for its image has none here either"
    )


def test_it_speaks_to_the_api_server_alone() -> None:
    policy = of_uninstall(render(CPU))["NetworkPolicy"]["spec"]
    labels = pod_of(render(CPU), "uninstall").metadata["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert policy["egress"] == [{"ports": [{"port": 443}, {"port": 6443}]}]
    narrow = render(merged(CPU, {"networkPolicy": {"apiServerCIDR": "10.0.0.1/32"}}))
    (rule,) = of_uninstall(narrow)["NetworkPolicy"]["spec"]["egress"]
    assert rule["to"] == [{"ipBlock": {"cidr": "10.0.0.1/32"}}]


def trainers(objects: list[Object]) -> list[Object]:
    """Jobs and JobSets of the trainer, and what a JobSet makes, as objects of the API server."""
    made = []
    for kind in ("Job", "JobSet"):
        made += [item for item in of_kind(objects, kind) if _hook(item) is None]
    for jobset in of_kind(objects, "JobSet"):
        for job in jobset["spec"]["replicatedJobs"]:
            name = f"{jobset['metadata']['name']}-{job['name']}-0"
            made.append({"kind": "Job", "metadata": {"name": name, **job["template"]["metadata"]}})
    assert made
    return made


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_it_deletes_the_trainers_of_every_revision_and_nothing_else(
    controller: str, tmp_path: Path
) -> None:
    """The rendered command, as a process, against a stand-in for the API server."""
    base = merged(CPU, {"trainer": {"controller": controller}})
    others_release = render(base, name="other", namespace=NAMESPACE)
    others = trainers(others_release)
    release = render(base, namespace=NAMESPACE)
    (own,) = [item for item in of_kind(release, "Job") if _hook(item) == "post-delete"]
    hooks = before_it(release)
    with ApiServer() as server, LocalCluster(release, tmp_path) as cluster:
        server.jobsets = [] if controller == "jobset" else None
        made = [
            item
            for values in REVISIONS
            for item in trainers(render(merged(base, values), namespace=NAMESPACE))
        ]
        assert len({item["metadata"]["name"] for item in made}) >= 5
        server.hooks = {path_of(item): item for item in (*hooks, *before_it(others_release))}
        for item in (*made, *others, own):
            (server.jobs if item["kind"] == "Job" else jobsets(server)).append(item)
        pod = cluster.pod("uninstall")
        (container,) = pod.template.spec["containers"]
        command = [*container["command"], *container["args"]]
        given = {"KUBECONFIG": str(server.kubeconfig(tmp_path))}
        assert pod.run("uninstall", command, given).wait(60) == 0, pod.log("uninstall").read_text()
        left = [item["metadata"]["name"] for item in (*server.jobs, *(server.jobsets or []))]
        assert sorted(left) == sorted(item["metadata"]["name"] for item in (*others, own))
        assert sorted(server.hooks) == sorted(path_of(item) for item in before_it(others_release))
        said = pod.log("uninstall").read_text()
        assert {
            f"deleted: {item['kind']} {item['metadata']['name']}" for item in (*made, *hooks)
        } == set(said.splitlines())
        assert {method for method, _ in server.log} == {"DELETE"}, "it may nothing else"
        if controller == "jobset":
            return  # the same program: once is enough for what it says of nothing and of a refusal

        assert pod.run("again", command, given).wait(60) == 0
        assert pod.log("again").read_text() == "nothing was left behind\n"
        server.refuse = {JOBS: 403}
        assert pod.run("refused", command, given).wait(60) == 1, (
            "so that the Job tries again, and Helm says so"
        )
        assert pod.log("refused").read_text() == (
            "error: cannot delete the trainer's Jobs: the service account may not; grant it\n"
        )


def path_of(item: Object) -> str:
    """Where the API server has it."""
    group = "api/v1" if item["apiVersion"] == "v1" else f"apis/{item['apiVersion']}"
    kinds = f"{item['kind'].lower()}s".replace("ys", "ies")
    return f"/{group}/namespaces/{NAMESPACE}/{kinds}/{item['metadata']['name']}"


def jobsets(server: ApiServer) -> list[dict[str, Any]]:
    assert server.jobsets is not None
    return server.jobsets


def test_a_release_without_a_name_selects_nothing() -> None:
    """The label is there in any case: no call can mean every Job of a namespace."""
    assert LABELS.endswith("instance=")
    selector = dict(pair.split("=") for pair in LABELS.split(","))
    job = next(item for item in of_kind(render(CPU), "Job") if _hook(item) is None)
    assert not selector.items() <= job["metadata"]["labels"].items()


def test_manifests_without_helm_have_no_such_hook() -> None:
    """Nobody would call it."""
    assert one(render(CPU), "Job", "-uninstall")
    for text in manifest_texts().values():
        assert "-uninstall" not in text
