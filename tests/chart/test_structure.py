"""What belongs together fits: selectors, ports, names, volumes; what an upgrade touches and what it leaves alone."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.rendering import (
    CHART,
    PROFILES,
    ROOT,
    Object,
    PodOf,
    helm_chart,
    merged,
    notes,
    of_kind,
    one,
    pod_of,
    pods,
    profile,
    render,
    run_file,
)
from tests.chart.value_sets import FROM_THE_HUB, VALUE_SETS

CPU = profile("cpu")
LABELS = ("name", "instance", "version", "component", "part-of", "managed-by")
ADDED_BY_THE_CLUSTER = ("batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/job-name")


def _selected(selector: Object, objects: list[Object]) -> list[Any]:
    wanted = {key: value for key, value in selector.items() if key not in ADDED_BY_THE_CLUSTER}
    return [pod for pod in pods(objects) if wanted.items() <= pod.metadata["labels"].items()]


@pytest.mark.parametrize("name", VALUE_SETS)
def test_selectors_labels_ports_and_volumes_fit(name: str) -> None:
    objects = render(VALUE_SETS[name])
    for item in objects:
        if item["metadata"]["name"] in ("demo-more", "demo-text"):
            continue
        labels = item["metadata"]["labels"]
        assert {f"app.kubernetes.io/{key}" for key in LABELS} | {"helm.sh/chart"} <= set(labels), item["metadata"][
            "name"
        ]
        assert len(item["metadata"]["name"]) <= 63
    for item in (*of_kind(objects, "Deployment"), *of_kind(objects, "StatefulSet")):
        selector = item["spec"]["selector"]["matchLabels"]
        assert set(selector) == {f"app.kubernetes.io/{key}" for key in ("name", "instance", "component")}
        assert [pod.owner for pod in _selected(selector, objects)] == [item]
    for service in of_kind(objects, "Service"):
        (pod,) = _selected(service["spec"]["selector"], objects)
        ports = {port["name"] for container in pod.containers for port in container.get("ports", [])}
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
    policies = {item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: item["spec"]
                for item in of_kind(objects, "NetworkPolicy")}  # fmt: skip
    if not policies:
        assert "networkPolicy.enabled is false" in notes(VALUE_SETS[name])
        return
    assert set(policies) == {pod.role for pod in pods(objects)}
    check = policies.pop("check")
    assert check["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(check), "the run file is checked without a word to anybody"
    roles = set(policies) - {"test", "test-ranks"}
    grader = policies.pop("grader", None)
    if grader is not None:
        assert grader["egress"] == []
        assert grader["policyTypes"] == ["Ingress", "Egress"]
        callers, readers = grader["ingress"]
        (peer,) = callers["from"]
        assert peer["podSelector"]["matchLabels"].items() <= pod_of(objects, "generator").metadata["labels"].items()
        assert callers["ports"] == [{"port": "grpc"}]
        assert all("namespaceSelector" in peer for peer in readers["from"])
        assert readers["ports"] == [{"port": "http"}]

    def may(caller: Object, role: str, port: str) -> bool:
        """Whether the pod of these labels, in the release's own namespace, is let in."""
        for rule in policies[role]["ingress"]:
            peers = [peer["podSelector"].get("matchLabels", {}) for peer in rule["from"]
                     if "podSelector" in peer and "namespaceSelector" not in peer]  # fmt: skip
            ports = [entry["port"] for entry in rule.get("ports", [])]
            if any(peer.items() <= caller.items() for peer in peers) and (not ports or port in ports):
                return True
        return False

    labels = {pod.role: pod.metadata["labels"] for pod in pods(objects)}
    for caller, role in itertools.product(("trainer", "generator"), repeat=2):
        assert may(labels[caller], role, "any")
    if "redis" in roles:
        assert all(may(labels[caller], "redis", "redis") for caller in ("trainer", "generator", "test"))
        assert not any(may(labels[caller], "redis", "redis") for caller in roles - {"trainer", "generator"})
    assert all(may(labels[caller], "trainer", "http") for caller in roles & {"forecaster", "autoscaler"})
    assert may(labels["test"], "generator", "http")
    assert not may(labels["test"], "generator", "any")
    for spec in policies.values():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert any({"port": 53, "protocol": "UDP"} in rule.get("ports", []) for rule in spec["egress"])
    values = merged(helm_values(), VALUE_SETS[name])
    hub = {role for role, spec in policies.items() if {"ports": [{"port": 443}]} in spec["egress"]}
    wanted = {"trainer", "generator"} if values["model"]["source"] == "hub" else set()
    wanted |= {"trainer"} if name in FROM_THE_HUB else set()
    assert hub == (set() if values["networkPolicy"]["allowHub"] is False else wanted)


def _let_in(spec: Object, namespace: str) -> set[str]:
    """Ports that pods of another namespace, known by the cluster's own label of its name, may reach."""
    label = {"kubernetes.io/metadata.name": namespace}
    return {
        port["port"]
        for rule in spec.get("ingress", [])
        if any(peer.get("namespaceSelector", {}).get("matchLabels") == label for peer in rule["from"])
        for port in rule["ports"]
    }


@pytest.mark.parametrize("name", VALUE_SETS)
def test_prometheus_and_keda_come_in_and_whoever_asks_prometheus_gets_out(name: str) -> None:
    """By the pages that monitors scrape, the port that the ScaledObject names, the sources that the run file names."""
    objects = render(VALUE_SETS[name])
    policies = {item["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: item["spec"]
                for item in of_kind(objects, "NetworkPolicy")}  # fmt: skip
    if not policies:
        return
    pages = {pod.role: {port["name"] for container in pod.containers for port in container.get("ports", [])}
             & {"http", "exporter"} for pod in pods(objects)}  # fmt: skip
    for role, ports in pages.items():
        assert ports <= _let_in(policies[role], "monitoring"), role
    keda = merged(helm_values(), VALUE_SETS[name])["networkPolicy"]["autoscalerFrom"] != []
    for scaled in of_kind(objects, "ScaledObject"):
        asked = int(scaled["spec"]["triggers"][0]["metadata"]["scalerAddress"].rpartition(":")[2])
        (container,) = pod_of(objects, "autoscaler").spec["containers"]
        (port,) = [port["name"] for port in container["ports"] if port["containerPort"] == asked]
        assert _let_in(policies["autoscaler"], "keda") == ({port} if keda else set())
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    asking = {role for role, spec in policies.items() if {"to": [prometheus]} in spec.get("egress", [])}
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
        container["name"] if container in pod.spec["containers"] else f"{container['name']} of {pod.role}"
        for pod in pods(render(VALUE_SETS[name]))
        for container in pod.containers
        if token in container.get("env", [])
    }
    assert found == presenting


def helm_values() -> Object:
    return dict(yaml.safe_load((CHART / "values.yaml").read_text()))


def _job(values: Object) -> str:
    jobs = of_kind(render(merged(CPU, values)), "Job")
    (name,) = [job["metadata"]["name"] for job in jobs if "-trainer-" in job["metadata"]["name"]]
    return str(name)


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"generator": {"replicas": 4}}, set()),
        ({"autoscaler": {"mode": "keda", "maxReplicas": 5}}, set()),
        ({"forecaster": {"resources": {"limits": {"memory": "1Gi"}}}}, {"forecaster"}),
        ({"config": {"forecaster": {"source": {"kind": "prometheus", "url": "http://p:9090"}}}}, {"forecaster"}),
        ({"config": {"budget": {"steps": 500}}}, {"trainer", "forecaster"}),
        ({"config": {"recipe": {"optimizer": {"learning_rate": 1e-5}}}}, {"trainer", "generator", "forecaster"}),
        ({"grader": {"enabled": True}}, {"trainer", "generator", "forecaster"}),
        ({"config": {"grader": {"processes": 8}}}, {"trainer", "generator"}),
        ({"generator": {"image": {"tag": "0.1.1-cpu"}}}, {"generator"}),
        ({"networkPolicy": {"enabled": False}, "monitoring": {"enabled": True}}, set()),
        ({"trainer": {"ttlSecondsAfterFinished": 60, "backoffLimit": 3}}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "+".join(sorted(value)),
)
def test_an_upgrade_restarts_only_what_reads_the_change(change: Object, restarts: set[str]) -> None:
    before, after = render(CPU), render(merged(CPU, change))
    changed = {
        role
        for role in ("trainer", "generator", "forecaster", "redis")
        if (pod_of(before, role).metadata, pod_of(before, role).spec)
        != (pod_of(after, role).metadata, pod_of(after, role).spec)
    }
    assert changed == restarts
    # A Job's template is immutable: other pods, other name; the same pods, the same name.
    assert (_job({}) != _job(change)) is ("trainer" in restarts)


@pytest.mark.parametrize("controller", ["job", "jobset"])
@pytest.mark.parametrize(
    "change",
    [
        {"trainer": {"backoffLimit": 3}},
        {"trainer": {"ttlSecondsAfterFinished": 60}},
        {"trainer": {"nodes": 2}, "storage": {"accessMode": "ReadWriteMany"}},
        {"trainer": {"podLabels": {"team": "rl"}}},
        {"nameOverride": "other", "fullnameOverride": "demo-rollcast"},
        {"podSecurity": {"runAsUser": 2000}},
        {"generator": {"replicas": 3}},
    ],
    ids=str,
)
def test_an_upgrade_changes_nothing_that_cannot_change(controller: str, change: Object) -> None:
    """A Job may get another backoffLimit, a JobSet may not; both may be kept longer. Else it is another object."""
    mutable = {"job": ("backoffLimit", "ttlSecondsAfterFinished"), "jobset": ("ttlSecondsAfterFinished",)}[controller]
    kind = {"job": "Job", "jobset": "JobSet"}[controller]
    base = merged(CPU, {"trainer": {"controller": controller}})

    def trainer(values: Object) -> tuple[str, Object]:
        (item,) = [
            item
            for item in of_kind(render(values), kind)
            if "helm.sh/hook" not in item["metadata"].get("annotations", "")
        ]
        return item["metadata"]["name"], {key: part for key, part in item["spec"].items() if key not in mutable}

    before, after = trainer(base), trainer(merged(base, change))
    assert (before[0] == after[0]) is (before[1] == after[1])


def test_a_node_that_goes_away_is_no_failure_of_a_jobset() -> None:
    """Its Job fails at once, for all ranks to begin again, with a message that the first matching rule knows.

    The messages are those of Kubernetes' Job controller; the reason is the same for both.
    """
    (jobset,) = of_kind(render(VALUE_SETS["jobset"]), "JobSet")
    (job,) = [entry["template"]["spec"] for entry in jobset["spec"]["replicatedJobs"]]
    on_disruption = {"type": "DisruptionTarget", "status": "True"}
    assert [
        rule["action"] for rule in job["podFailurePolicy"]["rules"] if on_disruption in rule["onPodConditions"]
    ] == ["FailJob"]

    def done(message: str) -> str:
        for rule in jobset["spec"]["failurePolicy"]["rules"]:
            patterns = rule.get("onJobFailureMessagePatterns", [])
            matches = not patterns or any(re.search(pattern, message) for pattern in patterns)
            if "PodFailurePolicy" in rule["onJobFailureReasons"] and matches:
                return str(rule["action"])
        return "RestartJobSet"

    pod = "ml/demo-rollcast-0123abcd-trainer-0-0-xyz12"
    assert done(f"Pod {pod} has condition DisruptionTarget matching FailJob rule at index 1") == (
        "RestartJobSetAndIgnoreMaxRestarts"
    )
    assert done(f"Container trainer for pod {pod} failed with exit code 2 matching FailJob rule at index 0") == (
        "FailJobSet"
    )


def test_priority_classes_are_named_after_what_cannot_change() -> None:
    def classes(**given: Any) -> dict[str, Object]:
        objects = render(merged(CPU, {"priorityClasses": {"create": True, **given}}))
        found = {item["metadata"]["name"]: item for item in of_kind(objects, "PriorityClass")}
        assert {pod_of(objects, role).spec["priorityClassName"] for role in ("trainer", "generator")} == set(found)
        return found

    variants = [
        classes(),
        classes(trainer=70000),
        classes(generator=-7, trainer=70000),
        classes(preemptionPolicy="PreemptLowerPriority"),
    ]
    seen: dict[str, tuple[int, str]] = {}
    for name, item in itertools.chain.from_iterable(variant.items() for variant in variants):
        fixed = (item["value"], item["preemptionPolicy"])
        assert seen.setdefault(name, fixed) == fixed
    assert {item["preemptionPolicy"] for item in variants[0].values()} == {"Never"}
    assert [item["preemptionPolicy"] for name, item in variants[3].items() if "-trainer-" in name] == [
        "PreemptLowerPriority"
    ]
    assert [item["preemptionPolicy"] for name, item in variants[3].items() if "-generator-" in name] == ["Never"]


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
        {volume.get("persistentVolumeClaim", {}).get("claimName") for volume in pod.spec["volumes"]} & one_node
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
    own = {"podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}, "weight": 1}
    zone = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
    affinity = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [own],
            "requiredDuringSchedulingIgnoredDuringExecution": [zone],
        }
    }
    objects = render(
        merged(VALUE_SETS["8xh100"], {"trainer": {"affinity": affinity}, "generator": {"affinity": affinity}})
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
    assert gpus["trainer"] + pod_of(objects, "generator").owner["spec"]["replicas"] * gpus["generator"] == 8
    for name in ("scalerl-8b", "moe"):
        assert not any(_together(pod.spec) for pod in pods(render(VALUE_SETS[name])))


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("change", [{"mode": "none"}, {"mode": "controller"}, {}], ids=str)
def test_the_command_of_the_notes_that_lets_generators_go_is_accepted(name: str, change: Object) -> None:
    values = merged(VALUE_SETS[name], {"autoscaler": {"letGoAtEnd": False, **change}})
    (given,) = re.findall(r"upgrade demo CHART --reuse-values --set (\S+)", notes(values))
    asked: Object = {}
    for path, _, text in (pair.partition("=") for pair in given.split(",")):
        group, key = path.split(".")
        asked.setdefault(group, {})[key] = yaml.safe_load(text)
    after = render(merged(values, asked))
    assert one(after, "Deployment", "-generator")["spec"]["replicas"] == 0


def test_the_trainers_name_leads_to_the_newest_jobs_first_pod() -> None:
    for name in ("cpu", "jobset"):
        objects = render(VALUE_SETS[name])
        selector = one(objects, "Service", "-trainer")["spec"]["selector"]
        owner = pod_of(objects, "trainer").owner
        expected = owner["metadata"]["name"] + ("-trainer-0" if owner["kind"] == "JobSet" else "")
        assert selector["batch.kubernetes.io/job-name"] == expected
        assert selector["batch.kubernetes.io/job-completion-index"] == "0"


def test_names_of_pods_fit_a_host_name() -> None:
    """JobSet: name, replicated job, two indices and five random characters stay within 63; Job: name and index."""
    long = {"fullnameOverride": "x" * 60}
    jobset = one(render(merged(VALUE_SETS["jobset"], long)), "JobSet")["metadata"]["name"]
    assert len(f"{jobset}-trainer-0-1023-abcde") <= 63
    assert len(f"{_job(long)}-1023") <= 63


def test_replicas_are_left_to_whoever_scales() -> None:
    assert one(render(CPU), "Deployment", "-generator")["spec"]["replicas"] == 1
    for mode in ("keda", "hpa", "controller"):
        assert "replicas" not in one(render(VALUE_SETS[mode]), "Deployment", "-generator")["spec"]


@pytest.mark.parametrize("name", ["keda", *PROFILES])
def test_an_autoscaler_that_does_not_answer_lets_no_generator_go(name: str) -> None:
    """KEDA holds the number of pods where a trigger fails and there is no fallback, whatever its version."""
    objects = render(merged(VALUE_SETS[name], {"autoscaler": {"mode": "keda"}}))
    spec = one(objects, "ScaledObject")["spec"]
    assert "fallback" not in spec
    assert [trigger["type"] for trigger in spec["triggers"]] == ["external-push"]
    (role,) = of_kind(objects, "Role")
    assert any("get" in rule["verbs"] for rule in role["rules"] if "deployments/scale" in rule["resources"]), (
        "a restarted autoscaler asks how many there are"
    )


@pytest.mark.parametrize("mode", ["keda", "hpa", "controller"])
@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_the_autoscaler_finds_the_trainers_jobs_and_no_others(mode: str, controller: str) -> None:
    values = {"autoscaler": {"mode": mode}, "trainer": {"controller": controller}, "nameOverride": "other"}
    objects = render(merged(CPU, values))
    settings = run_file(objects)["autoscaler"]
    wanted = dict(pair.split("=") for pair in settings["trainer_jobs"].split(","))
    jobs = [job["metadata"] for job in of_kind(objects, "Job")]
    jobs += [
        job["template"]["metadata"] for item in of_kind(objects, "JobSet") for job in item["spec"]["replicatedJobs"]
    ]
    (found,) = [metadata for metadata in jobs if wanted.items() <= metadata["labels"].items()]
    assert found["labels"]["app.kubernetes.io/component"] == "trainer"
    (role,) = of_kind(objects, "Role")
    assert [rule["verbs"] for rule in role["rules"] if "jobs" in rule["resources"]] == [["list"]]
    for scaled in of_kind(objects, "ScaledObject"):
        assert scaled["spec"]["idleReplicaCount"] == 0 < scaled["spec"]["minReplicaCount"]
    assert ("lets every generator go" in notes(merged(CPU, values))) is (mode != "hpa")


def test_generators_may_be_kept_at_the_end() -> None:
    for mode in ("keda", "controller"):
        values = merged(CPU, {"autoscaler": {"mode": mode, "letGoAtEnd": False}})
        objects = render(values)
        assert "trainer_jobs" not in run_file(objects)["autoscaler"]
        (role,) = of_kind(objects, "Role")
        assert not [rule for rule in role["rules"] if "jobs" in rule["resources"]]
        assert all("idleReplicaCount" not in item["spec"] for item in of_kind(objects, "ScaledObject"))
        assert "generators keep their devices" in notes(values)


def test_what_fetches_the_model_knows_the_roles_proxy_and_certificates() -> None:
    """Behind a proxy nothing else of the pod needs them more."""
    proxy = {"name": "HTTPS_PROXY", "value": "http://proxy:3128"}
    mount = {"name": "authorities", "mountPath": "/authorities", "readOnly": True}
    added = {
        "extraEnv": [proxy],
        "extraVolumes": [{"name": "authorities", "configMap": {"name": "authorities"}}],
        "extraVolumeMounts": [mount],
    }
    objects = render({"generator": added, "trainer": added})
    for role in ("generator", "trainer"):
        (fetches,) = pod_of(objects, role).spec["initContainers"]
        assert proxy in fetches["env"]
        assert mount in fetches["volumeMounts"]


def _asked(pod: PodOf, resource: str, measure: Callable[[str], float]) -> float:
    """What a scheduler counts: the larger of the largest init container and the sum of the others."""
    first, together = (
        [measure(container["resources"]["requests"][resource]) for container in pod.spec.get(kind, [])]
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
            assert first["resources"] == {
                kind: {key: amount for key, amount in service["resources"][kind].items() if "/" not in key}
                for kind in service["resources"]
            }
            assert others == []


def test_the_cpu_profile_fits_the_node_that_the_walkthrough_names() -> None:
    """With what kind's own pods ask for, with two trainers as in an upgrade, or the largest test or check."""
    text = (ROOT / "k8s" / "prerequisites" / "kind.yaml").read_text()
    cores, memory, taken_cores, taken_memory = (float(number) for number in re.findall(r"([\d.]+) (?:cores|GiB)", text))
    assert taken_cores >= 0.95
    for resource, measure, size in (("cpu", _cores, cores - taken_cores), ("memory", _gib, memory - taken_memory)):
        asked = {pod.role: _asked(pod, resource, measure) for pod in pods(render(CPU))}
        passing = max(asked.pop("test"), 2 * asked.pop("test-ranks"), asked.pop("check"))
        assert sum(asked.values()) + max(passing, asked["trainer"]) <= size, resource
    assert f"{cores:g} cores" in (ROOT / "docs" / "kubernetes.md").read_text()


@pytest.mark.parametrize("name", VALUE_SETS)
def test_a_rollout_has_longer_than_the_longest_start(name: str) -> None:
    """A generator is ready when a trainer has given it weights, which may have to start as well."""
    objects = render(VALUE_SETS[name])

    def longest(role: str) -> float:
        probe = pod_of(objects, role).spec["containers"][0]["startupProbe"]
        return float(probe["periodSeconds"] * probe["failureThreshold"])

    for deployment in of_kind(objects, "Deployment"):
        role = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        start = longest(role) + (longest("trainer") if role == "generator" else 0.0)
        assert deployment["spec"].get("progressDeadlineSeconds", 600) > start, role


def test_gpus_are_whole_limits_and_shared_memory_is_there() -> None:
    objects = render(VALUE_SETS["moe"])
    for role, count in (("trainer", 8), ("generator", 2)):
        (container,) = pod_of(objects, role).spec["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == count
        shm = next(volume for volume in pod_of(objects, role).spec["volumes"] if volume["name"] == "shm")
        assert shm["emptyDir"]["medium"] == "Memory"
    assert run_file(objects)["generator"]["tensor_parallel"] == 2
    for pod in pods(render(VALUE_SETS["cpu"])):
        assert "nvidia" not in json.dumps(pod.spec["containers"])
    rdma = pod_of(render(VALUE_SETS["rdma"]), "trainer").spec["containers"][0]
    assert rdma["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert rdma["resources"]["limits"]["rdma/hca_shared_devices_a"] == 1


@pytest.mark.parametrize("name", ["cpu", "8xh100", "scalerl-8b", "moe"])
def test_a_pod_has_time_to_drain(name: str) -> None:
    objects = render(VALUE_SETS[name])
    drain = run_file(objects)["generator"]["drain_seconds"]
    assert pod_of(objects, "generator").spec["terminationGracePeriodSeconds"] >= drain + 20
    assert pod_of(objects, "trainer").spec["terminationGracePeriodSeconds"] >= 60


def test_roles_autoscaler_bounds() -> None:
    objects = render(VALUE_SETS["controller"])
    (role,) = of_kind(objects, "Role")
    assert not of_kind(objects, "ClusterRole")
    verbs = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert not {verb for _, verb in verbs} & {"create", "delete", "deletecollection", "*"}
    assert not {resource for resource, _ in verbs} & {"secrets", "configmaps", "*"}
    scale = next(rule for rule in role["rules"] if "deployments/scale" in rule["resources"])
    assert scale["resourceNames"] == ["demo-rollcast-generator"]


def test_external_redis_takes_its_own_password() -> None:
    def password(name: str) -> Object | None:
        environment = pod_of(render(VALUE_SETS[name]), "generator").spec["containers"][0]["env"]
        entry = next((entry for entry in environment if entry["name"] == "ROLLCAST_REDIS_PASSWORD"), None)
        return entry and entry["valueFrom"]["secretKeyRef"]

    assert password("cpu") == {"name": "demo-rollcast-auth", "key": "redis-password"}
    assert password("own-secret") == {"name": "mine", "key": "redis-password"}
    assert password("external-redis") == {"name": "mine", "key": "redis-password"}
    assert password("external-redis-without-password") is None
    assert "redis-password" not in one(render(VALUE_SETS["external-redis"]), "Secret")["data"]
    assert run_file(render(VALUE_SETS["external-redis"]))["redis"] == {
        "host": "redis.example.com",
        "port": 6379,
        "tls": {},
        "max_bytes": 134_217_728,
    }


def test_the_registry_of_a_mirror_takes_the_place_of_all() -> None:
    images = {
        container["image"] for pod in pods(render(VALUE_SETS["digests-and-mirror"])) for container in pod.containers
    }
    assert all(image.startswith("mirror.example.com:5000/") for image in images)
    assert all("@sha256:" in image for image in images)


def test_the_cpu_images_bear_the_version_of_the_chart() -> None:
    version = helm_chart.Chart.load(CHART).metadata["appVersion"]
    assert CPU["generator"]["image"]["tag"] == CPU["trainer"]["image"]["tag"] == f"{version}-cpu"


def test_it_works_as_a_subchart(tmp_path: Path) -> None:
    """The parent's `global`, `enabled` as condition, and the schema, which must bear both."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "rollcast")
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "parent",
                "version": "1.0.0",
                "dependencies": [{"name": "rollcast", "version": ">=0.0.0-0", "condition": "rollcast.enabled"}],
            }
        )
    )
    (parent / "values.yaml").write_text("global: {imageRegistry: mirror, storageClass: fast}\n")
    on = render({"rollcast": CPU | {"enabled": True}}, path=parent)
    assert {container["image"].split("/")[0] for pod in pods(on) for container in pod.containers} == {"mirror"}
    assert one(on, "Deployment", "-generator")
    assert render({"rollcast": {"enabled": False}}, path=parent) == []


def test_notes_say_where_to_look_and_what_is_insecure() -> None:
    text = notes(CPU)
    assert "port-forward svc/demo-rollcast-forecaster 8400" in text
    assert "WARNING" not in text
    assert "passwordSecret is empty" in notes(VALUE_SETS["external-redis-without-password"])
    assert "http-token" in notes(VALUE_SETS["own-secret"])
    assert '"Rollcast forecast ml/demo"' in notes(VALUE_SETS["monitoring"])
    assert "collective_timeout_seconds" in notes(VALUE_SETS["moe-as-a-job"])


def _datasource(values: Object) -> Object:
    """What Grafana would read of the release's data source."""
    (text,) = one(render(values), "ConfigMap", "-forecaster-datasource")["data"].values()
    provisioned = yaml.safe_load(text)
    assert provisioned["apiVersion"] == 1
    (source,) = provisioned["datasources"]
    return dict(source)


def test_grafana_finds_the_forecast_beyond_now() -> None:
    """By the Service's own name and port, the dashboard by the data source's name, and two releases do not collide."""
    objects = render(VALUE_SETS["monitoring"])
    item = one(objects, "ConfigMap", "-forecaster-datasource")
    assert item["metadata"]["labels"]["grafana_datasource"] == "1"
    service = one(objects, "Service", "-forecaster")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    (port,) = [port["port"] for port in service["spec"]["ports"] if port["name"] == "http"]
    source = _datasource(VALUE_SETS["monitoring"])
    assert source["url"] == f"http://{host}:{port}/prometheus"
    assert source["type"] == "prometheus"
    assert len(source["uid"]) <= 40
    assert "httpHeaderName1" not in source["jsonData"]
    run = json.loads((CHART / "files" / "dashboards" / "run.json").read_text())
    wanted = {
        variable["name"]: re.compile(variable["regex"].removeprefix("/").removesuffix("/i"), re.IGNORECASE)
        for variable in run["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert wanted["forecaster"].search(source["name"])
    assert not wanted["datasource"].search(source["name"])
    assert wanted["datasource"].search("Prometheus")
    other = yaml.safe_load(
        next(iter(one(render(VALUE_SETS["monitoring"], name="b"), "ConfigMap", "-datasource")["data"].values()))
    )["datasources"][0]
    assert {other[key] for key in ("name", "uid", "url")}.isdisjoint({source[key] for key in ("name", "uid", "url")})


def test_grafana_presents_the_token_and_speaks_tls_where_the_pages_ask_for_it() -> None:
    dashboards = {"monitoring": {"dashboards": {"enabled": True}}}
    asked = _datasource(merged(VALUE_SETS["http-token"], dashboards))
    assert asked["jsonData"]["httpHeaderName1"] == "Authorization"
    assert asked["secureJsonData"] == {"httpHeaderValue1": "Bearer $ROLLCAST_HTTP_TOKEN"}
    assert "ROLLCAST_HTTP_TOKEN" in notes(merged(VALUE_SETS["http-token"], dashboards))
    encrypted = _datasource(merged(VALUE_SETS["tls-everywhere"], dashboards))
    assert encrypted["url"].startswith("https://")
    assert encrypted["jsonData"]["tlsSkipVerify"] is True


def test_no_data_source_is_made_that_leads_nowhere_or_is_not_wanted() -> None:
    for change in (
        {"monitoring": {"dashboards": {"enabled": True, "datasourceLabels": None}}},
        {"monitoring": {"dashboards": {"enabled": True}}, "forecaster": {"enabled": False}},
        {},
    ):
        assert of_kind(render(merged(CPU, change)), "ConfigMap", "-datasource") == []


def test_a_secret_of_ones_own_is_not_made_again() -> None:
    assert of_kind(render(VALUE_SETS["own-secret"]), "Secret") == []
    data = one(render(CPU), "Secret")["data"]
    assert len({*data.values()}) == len(data) == 2
