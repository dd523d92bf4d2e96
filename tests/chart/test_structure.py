"""What belongs together fits: selectors, ports, names, volumes, and who may reach whom."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.chart.rendering import (
    Object,
    defaults,
    merged,
    notes,
    of_kind,
    one,
    pod_of,
    pods,
    render,
    run_file,
    trainer_job,
)
from tests.chart.value_sets import FROM_THE_HUB, VALUE_SETS

LABELS = ("name", "instance", "version", "component", "part-of", "managed-by")


HOOKS = ("uninstall", "left-trainers", "dry-run", "image", "image-watch")
ADDED_BY_THE_CLUSTER = ("batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name")


def _selected(selector: Object, objects: list[Object]) -> list[Any]:
    wanted = {key: value for key, value in selector.items() if key not in ADDED_BY_THE_CLUSTER}
    return [pod for pod in pods(objects) if wanted.items() <= pod.metadata["labels"].items()]


def _policies_by_role(objects: list[Object]) -> dict[str, Any]:
    policies = {}
    for item in of_kind(objects, "NetworkPolicy"):
        labels = item["spec"]["podSelector"]["matchLabels"]
        # tests/chart/test_episode_pods.py
        if labels["app.kubernetes.io/name"] == "rollcast-episode":
            continue
        policies[labels["app.kubernetes.io/component"]] = item["spec"]
    return policies


@pytest.mark.parametrize("name", VALUE_SETS)
def test_selectors_labels_ports_and_volumes_fit(name: str) -> None:
    objects = render(VALUE_SETS[name])
    for item in objects:
        if item["metadata"]["name"] in ("demo-more", "demo-text"):
            continue
        labels = item["metadata"]["labels"]
        assert {f"app.kubernetes.io/{key}" for key in LABELS} | {"helm.sh/chart"} <= set(labels), (
            item["metadata"]["name"]
        )
        assert len(item["metadata"]["name"]) <= (253 if item["kind"] == "Pod" else 63)
    for item in (*of_kind(objects, "Deployment"), *of_kind(objects, "StatefulSet")):
        selector = item["spec"]["selector"]["matchLabels"]
        assert set(selector) == {
            f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")
        }
        assert [pod.owner for pod in _selected(selector, objects)] == [item]
    for service in of_kind(objects, "Service"):
        (pod,) = _selected(service["spec"]["selector"], objects)
        ports = {
            port["name"] for container in pod.containers for port in container.get("ports", [])
        }
        if pod.role != "test-ranks":
            assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    claims = {item["metadata"]["name"] for item in of_kind(objects, "PersistentVolumeClaim")}
    for pod in pods(objects):
        names = [volume["name"] for volume in pod.spec["volumes"]]
        assert len(names) == len(set(names)), pod.name
        for volume in pod.spec["volumes"]:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            given = json.dumps(VALUE_SETS[name])
            assert claim is None or claim in claims or f'"{claim}"' in given, (pod.name, claim)
        for container in pod.containers:
            variables = [entry["name"] for entry in container.get("env", [])]
            assert len(variables) == len(set(variables)), (pod.name, container["name"])
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(paths) == len(set(paths))
            assert not container["image"].endswith(":latest")


@pytest.mark.parametrize("name", VALUE_SETS)
def test_policies_open_what_is_needed(name: str) -> None:
    """Every role is closed; whoever reads its pages or its queue by the run file is let in."""
    objects = render(VALUE_SETS[name])
    policies = _policies_by_role(objects)
    if not policies:
        assert "networkPolicy.enabled is false" in notes(VALUE_SETS[name])
        return
    assert set(policies) == {pod.role for pod in pods(objects)} - {"image-pull"}, (
        "which does nothing at all"
    )
    check = policies.pop("check")
    assert check["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(check), (
        "the run file is checked without a word to anybody"
    )
    # tests/chart/test_uninstall.py, test_left_trainers.py, test_image_watch.py
    policies = {role: spec for role, spec in policies.items() if role not in HOOKS}
    # tests/chart/test_environments.py
    policies = {role: spec for role, spec in policies.items() if not role.startswith("env-")}
    roles = set(policies) - {"test", "test-ranks", "test-peer"}
    grader = policies.pop("grader", None)
    if grader is not None:
        assert grader["egress"] == []
        assert grader["policyTypes"] == ["Ingress", "Egress"]
        callers, readers = grader["ingress"]
        (peer,) = callers["from"]
        assert (
            peer["podSelector"]["matchLabels"].items()
            <= pod_of(objects, "generator").metadata["labels"].items()
        )
        assert callers["ports"] == [{"port": "grpc"}]
        assert all("namespaceSelector" in peer for peer in readers["from"])
        assert readers["ports"] == [{"port": "http"}]

    def may(caller: Object, role: str, port: str) -> bool:
        """Whether the pod of these labels, in the release's own namespace, is let in."""
        for rule in policies[role]["ingress"]:
            peers = [peer["podSelector"].get("matchLabels", {}) for peer in rule["from"]
                     if "podSelector" in peer and "namespaceSelector" not in peer]  # fmt: skip
            ports = [entry["port"] for entry in rule.get("ports", [])]
            if any(peer.items() <= caller.items() for peer in peers) and (
                not ports or port in ports
            ):
                return True
        return False

    labels = {pod.role: pod.metadata["labels"] for pod in pods(objects)}
    # A release of generators alone has no trainer: test_generators_only.py
    for caller, role in itertools.product({"trainer", "generator"} & roles, repeat=2):
        assert may(labels[caller], role, "any")
    if "redis" in roles:
        assert all(
            may(labels[caller], "redis", "redis") for caller in ("trainer", "generator", "test")
        )
        assert not any(
            may(labels[caller], "redis", "redis") for caller in roles - {"trainer", "generator"}
        )
    assert all(
        may(labels[caller], "trainer", "http") for caller in roles & {"forecaster", "autoscaler"}
    )
    assert may(labels["test"], "generator", "http")
    assert not may(labels["test"], "generator", "any")
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert any(
            {"port": 53, "protocol": "UDP"} in rule.get("ports", []) for rule in spec["egress"]
        )
    values = merged(defaults(), VALUE_SETS[name])
    hub = {role for role, spec in policies.items() if {"ports": [{"port": 443}]} in spec["egress"]}
    wanted = {"trainer", "generator"} if values["model"]["source"] == "hub" else set()
    wanted |= {"trainer"} if name in FROM_THE_HUB else set()
    if "://" in values["config"].get("weights", {}).get("store", {}).get("location", ""):
        wanted |= {"trainer", "generator"} & roles
    assert hub == (set() if values["networkPolicy"]["allowHub"] is False else wanted)


def _let_in(spec: Object, namespace: str) -> set[str]:
    """Ports that pods of another namespace, known by the cluster's own label of its name, may
    reach.
    """
    label = {"kubernetes.io/metadata.name": namespace}
    return {
        port["port"]
        for rule in spec.get("ingress", [])
        if any(
            peer.get("namespaceSelector", {}).get("matchLabels") == label for peer in rule["from"]
        )
        for port in rule["ports"]
    }


@pytest.mark.parametrize("name", VALUE_SETS)
def test_prometheus_and_keda_come_in_and_whoever_asks_prometheus_gets_out(name: str) -> None:
    """By the pages that monitors scrape, the port that the ScaledObject names, the sources that the
    run file names.
    """
    objects = render(VALUE_SETS[name])
    policies = _policies_by_role(objects)
    if not policies:
        return
    pages = {pod.role: {port["name"] for container in pod.containers for port in container.get("ports", [])}  # noqa: E501
             & {"http", "exporter"} for pod in pods(objects)}  # fmt: skip
    for role, ports in pages.items():
        assert not ports or ports <= _let_in(policies[role], "monitoring"), role
    keda = merged(defaults(), VALUE_SETS[name])["networkPolicy"]["autoscalerFrom"] != []
    for scaled in of_kind(objects, "ScaledObject"):
        asked = int(scaled["spec"]["triggers"][0]["metadata"]["scalerAddress"].rpartition(":")[2])
        (container,) = pod_of(objects, "autoscaler").spec["containers"]
        (port,) = [port["name"] for port in container["ports"] if port["containerPort"] == asked]
        assert _let_in(policies["autoscaler"], "keda") == ({port} if keda else set())
    agents = {role for role, spec in policies.items() if _let_in(spec, "agents") == {"http"}}
    assert agents == ({"generator"} if name == "agents-elsewhere" else set())
    prometheus = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    }
    asking = {
        role for role, spec in policies.items() if {"to": [prometheus]} in spec.get("egress", [])
    }
    settings = run_file(objects)
    sources = {role for role in set(policies) & {"forecaster", "autoscaler"}
               if settings[role]["source"]["kind"] == "prometheus"}  # fmt: skip
    assert asking == sources


@pytest.mark.parametrize(
    ("name", "presenting"),
    [
        ("cpu", set()),
        ("data-from-the-hub-with-token", {"trainer"}),
        ("model-from-the-hub-with-token", {"model of trainer", "model of generator"}),
    ],
)
def test_the_hubs_token_is_with_what_reads_the_hub(name: str, presenting: set[str]) -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}
    found = {
        container["name"]
        if container in pod.spec["containers"]
        else f"{container['name']} of {pod.role}"
        for pod in pods(render(VALUE_SETS[name]))
        for container in pod.containers
        if token in container.get("env", [])
    }
    assert found == presenting


def test_the_trainers_name_leads_to_first_pods_of_every_job() -> None:
    """It changes before the API server has accepted an upgrade's Job: the trainer before must keep
    its name.
    """
    for name in ("cpu", "jobset"):
        objects = render(VALUE_SETS[name])
        selector = one(objects, "Service", "-trainer")["spec"]["selector"]
        assert {key: value for key, value in selector.items() if key.startswith("batch.")} == {
            "batch.kubernetes.io/job-completion-index": "0"
        }


def test_ranks_meet_at_the_first_pod_of_their_own_job() -> None:
    """An Indexed Job's pods are called JOB-INDEX, below the headless Service's name, which is their
    subdomain.
    """
    for name in ("cpu", "jobset", "two-cpu-nodes"):
        objects = render(VALUE_SETS[name])
        pod = pod_of(objects, "trainer")
        service = one(objects, "Service", "-trainer")
        assert pod.spec["subdomain"] == service["metadata"]["name"]
        assert service["spec"]["publishNotReadyAddresses"] is True
        assert f"--main-host=$(JOB_NAME)-0.{pod.spec['subdomain']}" in pod.containers[-1]["args"]


def test_names_of_pods_fit_a_host_name() -> None:
    """JobSet: name, replicated job, two indices and five random characters stay within 63; Job:
    name and index.
    """
    long = {"fullnameOverride": "x" * 60}
    jobset = one(render(merged(VALUE_SETS["jobset"], long)), "JobSet")["metadata"]["name"]
    assert len(f"{jobset}-trainer-0-1023-abcde") <= 63
    assert len(f"{trainer_job(long)}-1023") <= 63


def test_what_fetches_the_model_knows_the_roles_proxy_and_certificates() -> None:
    """Behind a proxy nothing else of the pod needs them more."""
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    mount = {"name": "authorities", "mountPath": "/authorities", "readOnly": True}
    proxies = [{"configMapRef": {"name": "proxies"}}]
    added = {
        "extraEnv": [proxy],
        "envFrom": proxies,
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [mount],
    }
    objects = render({"generator": added, "trainer": added})
    for role in ("generator", "trainer"):
        (fetches,) = pod_of(objects, role).spec["initContainers"]
        assert proxy in fetches["env"]
        assert fetches["envFrom"] == proxies
        assert mount in fetches["volumeMounts"]
