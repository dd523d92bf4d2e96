"""What a platform asks for: a proxy's port, groups, folders of volumes, labels of claims, monitors
elsewhere.
"""

from __future__ import annotations

import pytest

from tests.chart.network import OUTSIDE, Network
from tests.chart.rendering import CPU, NAMESPACE, helm_errors, merged, of_kind, pod_of, pods, render

PROXY = 3128
RELABELING = {"targetLabel": "cluster", "replacement": "east", "action": "replace"}


def test_a_proxys_port_is_open_to_trainer_and_generators_alone() -> None:
    network = Network(render(merged(CPU, {"networkPolicy": {"proxyPorts": [PROXY]}})))
    open_to = {
        role for role, place in network.roles.items() if network.admits(place, OUTSIDE, PROXY)
    }
    assert open_to == {"trainer", "generator"}
    closed = Network(render(CPU))
    assert not any(closed.admits(place, OUTSIDE, PROXY) for place in closed.roles.values())


def test_further_groups_are_those_of_every_pod() -> None:
    objects = render(merged(CPU, {"podSecurity": {"supplementalGroups": [2000, 3000]}}))
    assert all(
        pod.spec["securityContext"]["supplementalGroups"] == [2000, 3000] for pod in pods(objects)
    )


def test_a_folder_of_a_volume_is_mounted() -> None:
    objects = render(
        merged(CPU, {"storage": {"subPath": "team/rl"}, "model": {"volume": {"subPath": "models"}}})
    )
    found = {
        (pod.role, container["name"], mount["name"]): mount["subPath"]
        for pod in pods(objects)
        for container in pod.containers
        for mount in container.get("volumeMounts", [])
        if "subPath" in mount
    }
    assert found == {
        ("trainer", "trainer", "runs"): "team/rl",
        **{
            (role, name, "models"): "models"
            for role in ("trainer", "generator")
            for name in (role, "model")
        },
    }
    with pytest.raises(helm_errors.HelmError, match="subPath"):
        render(merged(CPU, {"storage": {"subPath": "../others"}}))


def test_init_containers_end_before_the_model_is_fetched() -> None:
    wait = {"name": "wait", "image": "busybox:1", "command": ["true"]}
    sidecar = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}
    values = {"everyRole": {"extraInitContainers": [wait], "extraContainers": [sidecar]}}
    objects = render(merged(CPU, values))
    for role in ("trainer", "generator", "forecaster", "redis"):
        names = [container["name"] for container in pod_of(objects, role).spec["initContainers"]]
        assert names == ["proxy", "wait", "model"][: len(names)]
    with pytest.raises(
        helm_errors.HelmError, match=r"trainer\.extraInitContainers\[0\]\.name = model"
    ):
        render(merged(CPU, {"trainer": {"extraInitContainers": [{**wait, "name": "model"}]}}))


def test_claims_have_labels_but_those_of_a_template_that_cannot_change() -> None:
    values = {"claimLabels": {"backup": "daily"}, "model": {"volume": {"kind": "pvc"}}}
    objects = render(merged(CPU, values))
    claims = of_kind(objects, "PersistentVolumeClaim")
    assert len(claims) == 3
    assert {claim["metadata"]["labels"]["backup"] for claim in claims} == {"daily"}
    assert of_kind(objects, "StatefulSet", "-redis") == of_kind(
        render(CPU), "StatefulSet", "-redis"
    )


def test_monitors_may_be_in_another_namespace_and_relabel() -> None:
    monitoring = {"enabled": True, "namespace": "watch", "relabelings": [RELABELING]}
    values = {
        "monitoring": monitoring,
        "redis": {"exporter": {"enabled": True}},
        "grader": {"enabled": True, "runtimeClassName": ""},
        "autoscaler": {"mode": "controller"},
    }
    objects = render(merged(CPU, values))
    monitors = of_kind(objects, "PodMonitor") + of_kind(objects, "ServiceMonitor")
    assert len(monitors) == 6
    for monitor in monitors:
        assert monitor["metadata"]["namespace"] == "watch"
        assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
        (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
        assert endpoint["relabelings"][-1] == RELABELING
    with pytest.raises(helm_errors.HelmError, match=r"monitoring\.namespace = watch"):
        render(merged(CPU, {"monitoring": monitoring, "auth": {"http": True}}))
