"""What is looked at on a cluster, in order. Each step leaves the release at work, or the next one says so."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import quote

from rollcast.telemetry import names
from testkit.cluster.release import READY_SECONDS, STEP_SECONDS, Release
from testkit.cluster.tools import CHART, Cluster, NotSeen, Refuted

SETTLED = ("trainer", "generator", "redis", "forecaster")
UPGRADES: dict[str, tuple[str, set[str]]] = {
    "another number of generators": ("generator.replicas=2", set()),
    "another budget": ("config.budget.steps=2001", {"trainer", "forecaster"}),
    "another recipe": ("config.recipe.optimizer.warmup_steps=100", {"trainer", "generator", "forecaster"}),
    "resources of the forecaster": ("forecaster.resources.limits.memory=1Gi", {"forecaster"}),
}
"""Kind of change -> (value, roles whose pods are replaced): as tests/chart/test_upgrades.py has it of the templates."""
BROKEN = {
    "a wrong run file": "config.recipe.prompts_per_step=-1",
    "a claim that cannot change, with a budget": "redis.persistence.size=2Gi,config.budget.steps=2002",
}


@dataclass
class Proof:
    """What the steps share."""

    cluster: Cluster
    release: Release
    beside: Release
    elsewhere: Release
    prometheus: str | None
    """Service that is asked, as namespace/name:port; None = none."""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """What the row of this step says in the table."""
        self.notes.append(text)


def install(proof: Proof) -> None:
    proof.release.install()
    proof.release.wait_ready("redis", "forecaster", "generator")
    proof.release.goes_on()
    proof.note("all pods ready under Pod Security restricted, and steps are made")


def helm_test(proof: Proof) -> None:
    proof.cluster.helm("test", proof.release.name, "--timeout", "10m", seconds=READY_SECONDS)


def dashboards(proof: Proof) -> None:
    """Every query of every dashboard, asked of the cluster's own Prometheus, which scrapes the release."""
    if proof.prometheus is None:
        raise NotSeen("PROMETHEUS names no service, as namespace/name:port")
    if not proof.cluster.has("podmonitors.monitoring.coreos.com"):
        raise NotSeen("the cluster has no Prometheus operator")
    proof.release.upgrade(
        "monitoring.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true"
    )
    proof.cluster.until("the run is scraped", STEP_SECONDS, lambda: _asked(proof, f"{names.TRAINER_STEP.name}"))
    expressions = [
        text
        for path in sorted((CHART / "files" / "dashboards").glob("*.json"))
        for text in _queries(path, proof.cluster.namespace)
    ]
    empty = [text for text in expressions if not _asked(proof, text)]
    proof.note(f"{len(expressions) - len(empty)} of {len(expressions)} queries answer with data, the others with none")


def scaling(proof: Proof) -> None:
    """With a real KEDA: the HPA that it makes asks for the autoscaler's number."""
    if not proof.cluster.has("scaledobjects.keda.sh"):
        raise NotSeen("KEDA is not installed")
    release, cluster = proof.release, proof.cluster
    release.upgrade("autoscaler.mode=keda", "autoscaler.maxReplicas=3")
    release.wait_ready("autoscaler")
    hpa = f"keda-hpa-{release.full}-generator"
    cluster.until("KEDA's HPA reads the number", STEP_SECONDS, lambda: _hpa_is_active(cluster, hpa))
    before = _asked_for(proof)
    cluster.kubectl("delete", "pod", "-l", release.labels("autoscaler"), "--wait=true")
    cluster.kubectl("scale", "deployment", f"{release.full}-autoscaler", "--replicas=0")
    cluster.until("no autoscaler", STEP_SECONDS, lambda: not release.pods("autoscaler"))
    cluster.kubectl(
        "wait", "--for=condition=Ready=false", f"scaledobject/{release.full}-generator", "--timeout=300s", seconds=320
    )
    if _asked_for(proof) < before:
        raise Refuted(f"generators went from {before} to {_asked_for(proof)} while the autoscaler was away")
    cluster.kubectl("scale", "deployment", f"{release.full}-autoscaler", "--replicas=1")
    release.wait_ready("autoscaler")
    cluster.kubectl("describe", "deployment", f"{release.full}-generator")
    release.upgrade("autoscaler.mode=none")
    proof.note("the HPA asks for the number; it stays while the autoscaler is away")


def kill_each_pod(proof: Proof) -> None:
    for role in SETTLED:
        before = proof.release.uids().get(role, set())
        proof.cluster.kubectl("delete", "pod", "-l", proof.release.labels(role), "--grace-period=0", "--force")
        another = partial(proof.release.has_another, role, before)
        proof.cluster.until(f"another {role}", READY_SECONDS, another)
        proof.release.wait_ready(*(other for other in SETTLED if other != "trainer"))
        proof.release.goes_on()
    proof.note("each was replaced, and steps went on")


def drain(proof: Proof) -> None:
    """Evicts this release's pods alone; the trainer's budget must refuse."""
    _drain(proof, "generator")
    trainer = proof.release.uids()["trainer"]
    try:
        _drain(proof, "trainer", patience=20)
        refused = proof.cluster.recorded is not None
    except Refuted:
        # Whatever else may keep a node from being drained: the pod that was there is still there.
        refused = bool(trainer) and trainer == proof.release.uids()["trainer"]
    if not refused:
        raise Refuted("the trainer was evicted in spite of its disruption budget")
    proof.release.wait_ready("generator")
    proof.release.goes_on()
    proof.note("generators left and came back; the trainer's disruption budget held")


def _drain(proof: Proof, role: str, patience: int = 300) -> None:
    """Drains the node of a pod of that role from such pods, for so many seconds. Raises Refuted where that fails."""
    cluster = proof.cluster
    nodes = (
        ["NODE"] if cluster.recorded is not None else [pod["spec"].get("nodeName") for pod in proof.release.pods(role)]
    )
    if not nodes or nodes[0] is None:
        raise Refuted(f"no {role} is on a node that could be drained")
    node = str(nodes[0])
    selector = f"--pod-selector={proof.release.labels(role)}"
    options = ["--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={patience}s"]
    try:
        cluster.kubectl("drain", node, selector, *options, seconds=patience + 20)
    finally:
        cluster.kubectl("uncordon", node)


def upgrades(proof: Proof) -> None:
    for change, (value, replaced) in UPGRADES.items():
        before = proof.release.uids()
        proof.release.upgrade(value)
        proof.release.has_one_trainer()
        proof.release.wait_ready(*(role for role in SETTLED if role != "trainer"))
        proof.release.goes_on()
        after = proof.release.uids()
        seen = {role for role in SETTLED if before.get(role) and not before[role] <= after[role]}
        if proof.cluster.recorded is None and seen != replaced:
            raise Refuted(f"{change}: replaced {sorted(seen)}, not {sorted(replaced)}")
    proof.note(f"{', '.join(UPGRADES)}: each replaces what reads it; never two trainers")


def failed_upgrade(proof: Proof) -> None:
    for change, value in BROKEN.items():
        said = proof.release.refused_upgrade(*value.split(","))
        proof.note(f"{change}: {' '.join(said.split())[-120:]}")
        proof.release.upgrade("config.budget.steps=2003")
        proof.release.has_one_trainer()
        proof.release.goes_on()


def rollback(proof: Proof) -> None:
    proof.cluster.helm("rollback", proof.release.name, "1", seconds=READY_SECONDS)
    proof.release.has_one_trainer()
    proof.release.wait_ready("generator", "forecaster")
    proof.release.goes_on()
    proof.note("to the first revision: one trainer, and steps go on")


def second_release(proof: Proof) -> None:
    """In the same namespace and in another: no object in common, and both make steps."""
    for other in (proof.beside, proof.elsewhere):
        other.install()
        other.wait_ready("redis", "forecaster")
        other.cluster.until("a step", READY_SECONDS, other.step)
        proof.release.goes_on()
        other.uninstall()
    proof.note("one beside it, one of the same name elsewhere; both made steps, and so did the first")


def uninstall(proof: Proof) -> None:
    proof.release.uninstall()
    kinds = (
        "deployments,statefulsets,jobs,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies"
    )
    cluster, labels = proof.cluster, proof.release.labels()
    cluster.until("nothing is left", STEP_SECONDS, lambda: not cluster.objects(f"{kinds},pods", labels))
    left = [item["metadata"]["name"] for item in cluster.objects("persistentvolumeclaims", labels)]
    proof.note(f"claims that stay, as documented: {', '.join(left) or 'none'}")


STEPS: dict[str, Callable[[Proof], None]] = {
    "install": install,
    "helm test": helm_test,
    "the dashboards' queries": dashboards,
    "scaling with KEDA": scaling,
    "each pod killed": kill_each_pod,
    "a node drained": drain,
    "upgrades of each kind": upgrades,
    "an upgrade that fails": failed_upgrade,
    "a rollback": rollback,
    "a second release": second_release,
    "uninstall": uninstall,
}


def look(proof: Proof, step: str) -> dict[str, Any]:
    """Take one step; what was seen."""
    begun = time.monotonic()
    proof.notes.clear()
    verdict = "seen"
    try:
        STEPS[step](proof)
    except NotSeen as lack:
        verdict = "not seen"
        proof.note(str(lack))
    except Refuted as fault:
        verdict = "FAILED"
        proof.note(str(fault))
    return {"verdict": verdict, "seconds": round(time.monotonic() - begun), "note": "; ".join(proof.notes)}


def create_namespace(cluster: Cluster) -> None:
    """Under Pod Security restricted. Raises Refuted where it exists: what is in it is not ours to remove."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace, "labels": labels}}
    cluster.kubectl("create", "-f", "-", given=json.dumps(body))


def prepare(namespace: str, recorded: list[list[str]] | None = None) -> Proof:
    """The releases, in `namespace` and in another beside it, which the test makes."""
    here, there = Cluster(namespace, recorded), Cluster(f"{namespace}-2", recorded)
    return Proof(
        cluster=here,
        release=Release(here, "proof"),
        beside=Release(here, "beside"),
        elsewhere=Release(there, "proof"),
        prometheus=os.environ.get("PROMETHEUS"),
    )


def _queries(path: Any, namespace: str) -> list[str]:
    """Expressions that Grafana would send to Prometheus, its variables replaced."""
    found = re.findall(r'"expr": ("(?:[^"\\]|\\.)*")', path.read_text())
    values = {
        "namespace": namespace,
        "run": "demo",
        "runs": "demo",
        "target": "0.5",
        "__range": "15m",
        "__rate_interval": "5m",
    }
    return [re.sub(r"\$\{?([a-z_]\w*)\}?", lambda name: values[name[1]], json.loads(text)) for text in found]


def _asked(proof: Proof, expression: str) -> bool:
    """Whether Prometheus answers with any series."""
    assert proof.prometheus is not None
    namespace, _, service = proof.prometheus.partition("/")
    path = f"/api/v1/namespaces/{namespace}/services/{service}/proxy/api/v1/query?query={quote(expression)}"
    text = proof.cluster.kubectl("get", "--raw", path)
    return proof.cluster.recorded is not None or bool(json.loads(text)["data"]["result"])


def _hpa_is_active(cluster: Cluster, name: str) -> bool:
    told = cluster.kubectl("get", "hpa", name, "-o", "json")
    conditions = json.loads(told)["status"].get("conditions", []) if told else []
    return any(entry["type"] == "ScalingActive" and entry["status"] == "True" for entry in conditions)


def _asked_for(proof: Proof) -> int:
    text = proof.cluster.kubectl(
        "get", "deployment", f"{proof.release.full}-generator", "-o", "jsonpath={.spec.replicas}"
    )
    return int(text or 0)
