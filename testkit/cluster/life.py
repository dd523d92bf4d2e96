"""A release from its install to its end, and the faults between."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from testkit.cluster.changes import SETTLED
from testkit.cluster.proof import Proof
from testkit.cluster.release import READY_SECONDS, STEP_SECONDS
from testkit.cluster.tools import NEW_HELM, Refuted

MADE = (
    "deployments,statefulsets,services,configmaps,secrets,serviceaccounts,roles,rolebindings,networkpolicies,"
    "poddisruptionbudgets,horizontalpodautoscalers"
)
SAME_RUN = "has a run of this name in namespace"
MADE_OF_OPERATORS = (
    "scaledobjects.keda.sh",
    "jobsets.jobset.x-k8s.io",
    "podmonitors.monitoring.coreos.com",
    "servicemonitors.monitoring.coreos.com",
    "prometheusrules.monitoring.coreos.com",
)


def install(proof: Proof) -> None:
    proof.release.install()
    proof.release.wait_ready("redis", "forecaster", "generator")
    proof.release.goes_on()
    proof.note("all pods ready under Pod Security restricted, and steps are made")


def helm_test(proof: Proof) -> None:
    cluster, name = proof.cluster, proof.release.name
    if cluster.helm_version < NEW_HELM:
        cluster.helm("test", name, "--timeout", "10m", seconds=READY_SECONDS)
        proof.note(
            "every test ended well; --logs was not asked of this old Helm, which removes the pods "
            "before"
        )
        return
    logs = cluster.helm("test", name, "--logs", "--timeout", "10m", seconds=READY_SECONDS)
    cluster.require(
        lambda: "two ranks added up" in logs, "helm test --logs shows no log of the two ranks"
    )
    proof.note("every test ended well, and its log was found")


def kill_each_pod(proof: Proof) -> None:
    for role in SETTLED:
        uids_before = proof.release.uids()[role]
        proof.cluster.kubectl(
            "delete", "pod", "-l", proof.release.labels(role), "--grace-period=0", "--force"
        )
        proof.release.wait_replaced(role, uids_before)
        proof.release.wait_ready(*(other_role for other_role in SETTLED if other_role != "trainer"))
        proof.release.goes_on()
    proof.note("each was replaced, and steps went on")


def drain(proof: Proof) -> None:
    """Drain as kubectl does: a node that takes no more pods, and evictions, of this release's pods
    alone.

    `kubectl drain --pod-selector` would evict those of a release of the same name in every
    namespace.
    """
    release, cluster = proof.release, proof.cluster
    release.wait_ready("generator")
    for role in ("generator", "trainer"):
        with _cordon_node(proof, role) as pods:
            uids_before = release.uids()[role]
            refusals = [refusal for pod in pods if (refusal := _evict(proof, pod)) is not None]
            if role == "generator":
                cluster.require(lambda: not refusals, (f"a generator was not evicted: {refusals}"))  # noqa: B023
                evicted = {pod["metadata"]["uid"] for pod in pods}
                gone = partial(lambda uids: release.uids()["generator"].isdisjoint(uids), evicted)
                cluster.until("the generators of the node have left", READY_SECONDS, gone)
                continue
            is_unchanged = uids_before == release.uids()[role]
            budget = all("disruption budget" in refusal for refusal in refusals)
            if cluster.recorded is None and not (
                is_unchanged and budget and len(refusals) == len(pods)
            ):
                raise Refuted("the trainer was evicted in spite of its disruption budget")
    release.wait_ready("generator")
    release.goes_on()
    proof.note("generators left and came back; the trainer's disruption budget held")


@contextlib.contextmanager
def _cordon_node(proof: Proof, role: str) -> Iterator[list[dict[str, Any]]]:
    """Pods of that role on one node, which takes no others meanwhile.

    Raises Refuted if there is no such node.
    """
    cluster = proof.cluster
    pods = [pod for pod in proof.release.pods(role) if pod["spec"].get("nodeName")]
    if not pods and cluster.recorded is None:
        raise Refuted(f"no {role} is on a node that could be drained")
    node = str(pods[0]["spec"]["nodeName"]) if pods else "NODE"
    cluster.kubectl("cordon", node)
    try:
        yield [pod for pod in pods if pod["spec"]["nodeName"] == node]
    finally:
        cluster.kubectl("uncordon", node)


def _evict(proof: Proof, pod: dict[str, Any]) -> str | None:
    """Answer of the API server if it refuses; None = it does not."""
    name, namespace = pod["metadata"]["name"], proof.cluster.namespace
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
    try:
        proof.cluster.kubectl("create", "--raw", path, "-f", "-", stdin_text=json.dumps(body))
    except Refuted as error:
        return str(error)
    return None


def second_release(proof: Proof) -> None:
    """A release in the same namespace and one in another: no object in common,
    and both make steps.
    """
    for other_release in (proof.beside, proof.elsewhere):
        other_release.install()
        other_release.wait_ready("redis", "forecaster")
        other_release.goes_on()
        proof.release.goes_on()
        if other_release is proof.beside:
            refusal = other_release.refused_upgrade("config.run=demo")
            proof.cluster.require(
                lambda: SAME_RUN in refusal,  # noqa: B023
                f"another release took the run's name: {refusal}",
            )
        other_release.uninstall()
    proof.note(
        "one beside it, one of the same name elsewhere; both made steps, and so did the first; one "
        "run of a name"
    )


def uninstall(proof: Proof) -> None:
    """Only the objects that the documents name stay; then they are removed as documented."""
    release, cluster, labels = proof.release, proof.cluster, proof.release.labels()
    release.uninstall()
    kinds = [MADE, *(kind for kind in MADE_OF_OPERATORS if cluster.has(kind))]

    own_classes = f"{cluster.namespace}.{release.full}-"

    def there() -> list[str]:
        left = [item for kind in kinds for item in cluster.objects(kind, labels)]
        pods = cluster.objects("pods", labels)
        left += [pod for pod in pods if pod["status"]["phase"] == "Running"]
        classes = cluster.objects("priorityclasses", labels)
        left += [item for item in classes if item["metadata"]["name"].startswith(own_classes)]
        return [*map(object_name, left), *(f"Job/{name}" for name in release.trainer_jobs())]

    try:
        cluster.until("nothing else is left", STEP_SECONDS, lambda: not there())
    except Refuted as error:
        raise Refuted(f"{error}: {', '.join(there())}") from error
    claim = f"data-{release.full}-redis-0"
    claims = [
        item["metadata"]["name"]
        for item in cluster.objects("persistentvolumeclaims", labels)
        if "deletionTimestamp" not in item["metadata"]  # on their way, once no pod mounts them
    ]
    cluster.require(
        lambda: claims == [claim],
        f"claims that stay: {', '.join(claims) or 'none'}, not {claim} alone",
    )
    cluster.kubectl("delete", "pvc", claim, seconds=STEP_SECONDS)
    everything = "pods,jobs,persistentvolumeclaims"
    cluster.until(
        "nothing is left at all", STEP_SECONDS, lambda: not cluster.objects(everything, labels)
    )
    proof.note(f"stayed: {claim}, as documented; removed as documented, nothing is left")


def object_name(item: dict[str, Any]) -> str:
    return f"{item['kind']}/{item['metadata']['name']}"
