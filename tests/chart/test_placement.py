"""On which node a pod is put, and what it asks of it."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable

import pytest

from rollcast.telemetry.gpus import EXPECTED_GPUS, NODE_NAME
from tests.chart.rendering import (
    CPU,
    ROOT,
    Object,
    PodOf,
    merged,
    of_kind,
    pod_of,
    pods,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS


def _together(spec: Object) -> list[Object]:
    affinity = spec.get("affinity", {}).get("podAffinity", {})
    return [
        term["labelSelector"]
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", [])
        if term["topologyKey"] == "kubernetes.io/hostname"
    ]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_pods_that_share_a_volume_of_one_node_are_put_on_one_node(name: str) -> None:
    objects = render(VALUE_SETS[name])
    one_node = {
        item["metadata"]["name"]
        for item in of_kind(objects, "PersistentVolumeClaim")
        if item["spec"]["accessModes"] == ["ReadWriteOnce"]
    }
    roles = {pod.role: pod for pod in pods(objects) if pod.role in ("trainer", "generator")}
    mounted = [
        {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod.spec["volumes"]}
        & one_node
        for pod in roles.values()
    ]
    shared = set.intersection(*mounted)
    for role, pod in roles.items():
        terms = _together(pod.spec)
        assert bool(terms) is bool(shared), role
        for term, other in itertools.product(terms, roles.values()):
            (expression,) = term["matchExpressions"]
            labels = other.metadata["labels"]
            assert term["matchLabels"].items() <= labels.items()
            assert expression["operator"] == "In"
            assert labels[expression["key"]] in expression["values"]


def test_one_node_is_added_to_an_affinity_of_ones_own() -> None:
    own = {
        "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}},
        "weight": 1,
    }
    zone = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    affinity = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [own],
            "requiredDuringSchedulingIgnoredDuringExecution": [zone],
        }
    }
    objects = render(
        merged(
            VALUE_SETS["8xh100"],
            {"trainer": {"affinity": affinity}, "generator": {"affinity": affinity}},
        )
    )
    for role in ("trainer", "generator"):
        found = pod_of(objects, role).spec["affinity"]["podAffinity"]
        assert found["preferredDuringSchedulingIgnoredDuringExecution"] == [own]
        first, second = found["requiredDuringSchedulingIgnoredDuringExecution"]
        assert (first, second["topologyKey"]) == (zone, "kubernetes.io/hostname")


def test_a_profile_of_one_node_fits_one_node_and_the_others_need_none() -> None:
    objects = render(VALUE_SETS["8xh100"])
    gpus = {
        role: pod_of(objects, role).spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
        for role in ("trainer", "generator")
    }
    assert (
        gpus["trainer"] + pod_of(objects, "generator").owner["spec"]["replicas"] * gpus["generator"]
        == 8
    )
    for name in ("scalerl-8b", "moe"):
        assert not any(_together(pod.spec) for pod in pods(render(VALUE_SETS[name])))


def _asked(pod: PodOf, resource: str, measure: Callable[[str], float]) -> float:
    """What a scheduler counts: the larger of the largest init container and the sum
    of the others.
    """
    first, together = (
        [
            measure(container["resources"]["requests"][resource])
            for container in pod.spec.get(kind, [])
        ]
        for kind in ("initContainers", "containers")
    )
    return max([sum(together), *first])


def _cores(quantity: str) -> float:
    return float(quantity.removesuffix("m")) / 1000 if quantity.endswith("m") else float(quantity)


def _gib(quantity: str) -> float:
    return float(quantity[:-2]) * {"Mi": 1 / 1024, "Gi": 1.0}[quantity[-2:]]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_what_fetches_the_model_asks_for_no_more_than_the_service(name: str) -> None:
    for pod in pods(render(VALUE_SETS[name])):
        (service, *others) = pod.spec["containers"]
        for first in pod.spec.get("initContainers", []):
            if first.get("restartPolicy") == "Always":
                continue  # a sidecar of the owner's
            assert first["resources"] == {
                kind: {
                    key: amount
                    for key, amount in service["resources"][kind].items()
                    if "/" not in key
                }
                for kind in service["resources"]
                if kind != "claims"
            }
            assert others == []


def test_the_cpu_profile_fits_the_node_that_the_walkthrough_names() -> None:
    """With what kind's own pods ask for, with two trainers as in an upgrade, or the largest test or
    check.
    """
    text = (ROOT / "k8s" / "prerequisites" / "kind.yaml").read_text()
    cores, memory, taken_cores, taken_memory = (
        float(number) for number in re.findall(r"([\d.]+) (?:cores|GiB)", text)
    )
    assert taken_cores >= 0.95
    for resource, measure, size in (
        ("cpu", _cores, cores - taken_cores),
        ("memory", _gib, memory - taken_memory),
    ):
        asked = {pod.role: _asked(pod, resource, measure) for pod in pods(render(CPU))}
        passing = max(
            asked.pop("test"),
            asked.pop("test-ranks") + asked.pop("test-peer"),
            asked.pop("check"),
            asked.pop("dry-run"),
            asked.pop("image-pull"),
            asked.pop("left-trainers"),
        )
        passing = max(passing, asked.pop("image") + asked.pop("image-watch"))
        asked.pop("uninstall")  # alone: all else is gone by then
        assert sum(asked.values()) + max(passing, asked["trainer"]) <= size, resource
    assert f"{cores:g} cores" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_gpus_are_whole_limits_and_shared_memory_is_there() -> None:
    objects = render(VALUE_SETS["moe"])
    for role, count in (("trainer", 8), ("generator", 2)):
        (container,) = pod_of(objects, role).spec["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == count
        shm = next(
            volume for volume in pod_of(objects, role).spec["volumes"] if volume["name"] == "shm"
        )
        assert shm["emptyDir"]["medium"] == "Memory"
    assert run_file(objects)["generator"]["tensor_parallel"] == 2
    for pod in pods(render(VALUE_SETS["cpu"])):
        assert "nvidia" not in json.dumps(pod.spec["containers"])


def test_rdma_takes_a_capability_only_as_root_for_whom_it_has_an_effect() -> None:
    for name, is_root in (("rdma", False), ("rdma-as-root", True)):
        objects = render(VALUE_SETS[name])
        for role in ("trainer", "generator"):
            (container,) = pod_of(objects, role).spec["containers"]
            assert container["resources"]["limits"]["rdma/hca_shared_devices_a"] == 1
            context = container["securityContext"]
            assert ("add" in context["capabilities"]) is is_root
            assert (context.get("runAsUser") == 0) is is_root
            others = pod_of(objects, role).spec["initContainers"]
            assert not any("add" in one["securityContext"]["capabilities"] for one in others)


def test_processes_are_told_how_many_gpus_they_must_have_and_on_which_node() -> None:
    objects = render(VALUE_SETS["moe"])
    for role, count in (("trainer", "8"), ("generator", "2")):
        (container,) = pod_of(objects, role).spec["containers"]
        variables = {one["name"]: one for one in container["env"]}
        assert variables[EXPECTED_GPUS]["value"] == count
        assert variables[NODE_NAME]["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    for pod in pods(render(VALUE_SETS["cpu"])):
        assert EXPECTED_GPUS not in json.dumps(pod.spec["containers"])
