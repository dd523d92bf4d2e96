"""What platforms ask of every workload: queues, labels, schedulers, other devices, sidecars."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
import yaml

from tests.chart.rendering import (
    CPU,
    ROOT,
    WORKLOADS,
    Object,
    merged,
    notes,
    of_kind,
    pod_of,
    pods,
    profile,
    render,
)

QUEUE = {"kueue.x-k8s.io/queue-name": "research"}
DEVICES = ("trainer", "generator")
ROLES = (*DEVICES, "forecaster", "redis")


def _trainer(objects: list[Object]) -> Object:
    return pod_of(objects, "trainer").owner


def _main(objects: list[Object], role: str) -> Object:
    (found,) = [
        entry for entry in pod_of(objects, role).spec["containers"] if entry["name"] == role
    ]
    return dict(found)


@pytest.mark.parametrize("name", ["cpu", "moe"])
def test_a_profile_with_queues_and_gpus_of_another_maker(name: str) -> None:
    queued = {role: {"labels": QUEUE, "annotations": {"team": "rl"}} for role in ROLES}
    before = render(profile(name))
    after = render(merged(profile(name), {**queued, "gpu": {"resource": "amd.com/gpu"}}))
    for role in ROLES:
        metadata = pod_of(after, role).owner["metadata"]
        assert QUEUE.items() <= metadata["labels"].items()
        assert metadata["annotations"]["team"] == "rl"
        assert not QUEUE.items() <= pod_of(after, role).metadata["labels"].items(), (
            "pods bear podLabels"
        )
    for role in DEVICES:
        was, now = (_main(objects, role)["resources"]["limits"] for objects in (before, after))
        assert now.get("amd.com/gpu") == was.get("nvidia.com/gpu")
        assert "nvidia.com/gpu" not in now
    assert "suspend" not in _trainer(after)["spec"], (
        "Kueue suspends, and an upgrade must not undo what it decided"
    )
    labelled = render(merged(profile(name), {"trainer": {"labels": QUEUE}}))
    assert _trainer(labelled)["metadata"]["name"] == _trainer(before)["metadata"]["name"], (
        "a queue restarts nothing"
    )


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_a_run_is_suspended_and_goes_on_as_the_same_job(controller: str) -> None:
    values = merged(CPU, {"trainer": {"controller": controller}})
    plain, suspended = (
        _trainer(render(merged(values, {"trainer": {"suspend": s}}))) for s in (False, True)
    )
    assert suspended["spec"].pop("suspend") is True
    assert suspended == plain


def test_labels_of_the_owner_are_on_every_object_and_pod_and_in_no_selector() -> None:
    objects = render(
        merged(CPU, {"commonLabels": {"cost-center": "42"}, "monitoring": {"enabled": True}})
    )
    assert all(item["metadata"]["labels"]["cost-center"] == "42" for item in objects)
    assert all(
        pod.metadata["labels"]["cost-center"] == "42"
        for pod in pods(objects)
        if pod.owner["kind"] != "Pod"
    )
    for item in objects:
        assert "cost-center" not in str(item.get("spec", {}).get("selector", ""))
        assert "cost-center" not in str(item.get("spec", {}).get("podSelector", ""))


SIDECAR = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}
NEIGHBOUR = {"name": "shipper", "image": "shipper:1"}
ADDED: Object = {
    "envFrom": [{"configMapRef": {"name": "proxies"}}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "schedulerName": "volcano",
    "extraContainers": [SIDECAR],
}


def test_every_role_takes_what_its_pods_may_have() -> None:
    roles = (*ROLES, "autoscaler", "grader")
    values = merged(CPU, dict.fromkeys(roles, ADDED) | {"autoscaler": ADDED | {"mode": "hpa"}})
    values = merged(
        values,
        {"grader": {"enabled": True}, "forecaster": {"extraContainers": [SIDECAR, NEIGHBOUR]}},
    )
    objects = render(values)
    for role in roles:
        spec = pod_of(objects, role).spec
        assert spec["schedulerName"] == "volcano"
        assert spec["topologySpreadConstraints"] == ADDED["topologySpreadConstraints"]
        assert spec["initContainers"][0] == SIDECAR, "it runs before the model is fetched"
        assert _main(objects, role)["envFrom"] == ADDED["envFrom"]
        assert (NEIGHBOUR in spec["containers"]) is (role == "forecaster")


def test_what_runs_for_a_moment_runs_where_the_forecaster_may() -> None:
    """Where every node has a taint, or a scheduler must be named, neither a hook nor `helm test`
    would find a node.
    """
    placed = {
        "schedulerName": "volcano",
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    }
    objects = render(merged(CPU, {"forecaster": placed, "imagePullSecrets": [{"name": "mirror"}]}))
    short = [pod for pod in pods(objects) if pod.role not in ROLES]
    assert {pod.role for pod in short} == {
        "check",
        "image",
        "image-pull",
        "image-watch",
        "dry-run",
        "left-trainers",
        "uninstall",
        "test",
        "test-ranks",
        "test-peer",
    }
    for pod in short:
        assert placed.items() <= pod.spec.items(), pod.name
        assert pod.spec["imagePullSecrets"] == [{"name": "mirror"}]


def test_gpus_come_by_claims_where_no_resource_is_named() -> None:
    claims = [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}]
    values = merged(
        profile("8xh100"),
        {
            "gpu": {"resource": ""},
            "trainer": {"resourceClaims": claims},
            "generator": {"resourceClaims": claims},
        },
    )
    objects = render(values)
    for role in DEVICES:
        assert pod_of(objects, role).spec["resourceClaims"] == claims
        resources = _main(objects, role)["resources"]
        assert resources["claims"] == [{"name": "gpus"}]
        assert not [name for name in resources["limits"] if "gpu" in name]
    assert "--ranks=3" in _main(objects, "trainer")["args"], "there are as many ranks as before"


def test_the_nodes_network_is_given_where_it_is_asked_for_and_said_aloud() -> None:
    values = merged(CPU, {"trainer": {"hostNetwork": True}})
    spec = pod_of(render(values), "trainer").spec
    assert spec["hostNetwork"] is True
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert "hostNetwork" not in pod_of(render(values), "generator").spec
    assert 'Pod Security "baseline" refuses' in notes(values)
    assert 'Pod Security "baseline" refuses' not in notes(CPU)


def _values_of_the_guide() -> list[Object]:
    """Every indented block of docs/kubernetes.md that holds values of the chart."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    blocks = re.findall(r"(?m)(?:^ {4,}.*\n)+", page)
    texts = [
        textwrap.dedent(block) for block in blocks if re.match(r" +(generator|trainer|gpu):", block)
    ]
    return [dict(yaml.safe_load(text)) for text in texts]


def test_the_values_that_the_guide_shows_are_ones() -> None:
    shown = _values_of_the_guide()
    assert len(shown) == 4
    for values in shown:
        objects = render(merged(profile("8xh100"), values))
        for role in DEVICES:
            for field, wanted in values.get(role, {}).items():
                pod = pod_of(objects, role)
                variables = _main(objects, role)["env"]
                given = {"gpus": profile("8xh100")[role]["gpus"], "extraEnv": variables[-1:]}
                found = {**pod.spec, **pod.owner["metadata"], **given}[field]
                assert (
                    wanted.items() <= found.items() if isinstance(wanted, dict) else wanted == found
                )


def test_an_account_of_ones_own_is_not_made_again() -> None:
    objects = render(merged(CPU, {"serviceAccount": {"name": "mine"}}))
    made = {item["metadata"]["name"] for item in of_kind(objects, "ServiceAccount")}
    hooks = ("check", "dry-run", "image-watch", "left-trainers", "uninstall")
    assert made == {f"demo-rollcast-{role}" for role in hooks}, (
        "the hooks' own, whose rights are theirs alone"
    )
    accounts: dict[str, Any] = {pod.role: pod.spec["serviceAccountName"] for pod in pods(objects)}
    assert accounts.pop("image-pull") == "default"
    assert {accounts.pop(role) for role in (*hooks, "image")} == made
    assert set(accounts.values()) == {"mine"}


def test_every_object_that_has_pods_is_looked_at_here() -> None:
    kinds = {item["kind"] for item in render(CPU) if "template" in item.get("spec", {})}
    assert kinds <= set(WORKLOADS)
