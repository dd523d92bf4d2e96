"""Further programs of a cluster: KEDA, a network that obeys policies, Kueue."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import Any

from rollcast.autoscaler.announcer import Occasion
from testkit.cluster.changes import NO_AUTOSCALER, end_autoscaling
from testkit.cluster.proof import RESTRICTED, Proof
from testkit.cluster.release import READY_SECONDS, READYZ, STEP_SECONDS, Release
from testkit.cluster.tools import Cluster, NotSeen, Refuted, has_condition

QUEUE = "proof"
CLOSED = (
    "redis:6379",
    "trainer:8080",
    "trainer:7431",
    "generator:8080",
    "grader:7432",
    "grader:8404",
)
OPEN_TO_ITS_NAMESPACE = ("forecaster:8400",)
PROBE = """
import socket, sys
for place in sys.argv[1:]:
    host, _, port = place.rpartition(":")
    try:
        addresses = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except OSError:
        print("unknown", place)
        continue
    try:
        socket.create_connection(addresses[0][4][:2], timeout=5).close()
        print("reached", place)
    except OSError:
        print("closed", place)
"""


def scaling(proof: Proof) -> None:
    """With a real KEDA: up by what the autoscaler measured, never down while that is away, and off
    again.
    """
    if not proof.cluster.has("scaledobjects.keda.sh"):
        raise NotSeen("KEDA is not installed")
    release, cluster = proof.release, proof.cluster
    release.upgrade("autoscaler.mode=keda", "autoscaler.maxReplicas=3")
    release.wait_ready("autoscaler")
    hpa = f"keda-hpa-{release.full}-generator"
    cluster.until(
        "KEDA's HPA reads the number",
        STEP_SECONDS,
        lambda: has_condition(cluster.read("get", "hpa", hpa), "ScalingActive"),
    )
    try:
        # Time for a first measurement, a decision and a pod: minutes
        cluster.until("more generators", 1_500.0, lambda: release.generators_asked_for() > 1)
    except Refuted as error:
        raise Refuted(
            f"{error}; the autoscaler says: {release.page('autoscaler', READYZ)}"
        ) from error
    event_reason = Occasion.RAISED.value
    cluster.until(
        f"the event {event_reason}", STEP_SECONDS, lambda: event_reason in release.reasons()
    )
    generators_before = release.generators_asked_for()
    cluster.kubectl("delete", "pod", "-l", release.labels("autoscaler"), "--wait=true")
    cluster.kubectl("scale", "deployment", f"{release.full}-autoscaler", "--replicas=0")
    cluster.until("no autoscaler", STEP_SECONDS, lambda: not release.pods("autoscaler"))
    scaled = f"scaledobject/{release.full}-generator"
    cluster.kubectl("wait", "--for=condition=Ready=false", scaled, "--timeout=300s", seconds=320)
    fewer = f"fewer than {generators_before} generators while the autoscaler was away"
    # Twice the five minutes after which an HPA lowers the number
    cluster.always(600.0, lambda: release.generators_asked_for() >= generators_before, fewer)
    cluster.kubectl("scale", "deployment", f"{release.full}-autoscaler", "--replicas=1")
    release.wait_ready("autoscaler")
    end_autoscaling(proof, NO_AUTOSCALER)
    cluster.until("one generator again", STEP_SECONDS, lambda: release.generators_asked_for() == 1)
    release.goes_on()
    proof.note(
        f"from 1 to {generators_before} by what was measured, told in an event; not fewer while "
        "the autoscaler was away"
    )


def policies(proof: Proof) -> None:
    """A pod of another namespace reaches nothing; one of the same namespace without labels reaches
    the ports that are open to its namespace."""
    release, cluster = proof.release, proof.cluster
    release.upgrade("grader.enabled=true")
    release.wait_ready("grader", "forecaster", "redis", "generator")
    closed, opened = (
        [f"{release.full}-{address.replace(':', f'.{cluster.namespace}:')}" for address in places]
        for places in (CLOSED, OPEN_TO_ITS_NAMESPACE)
    )
    image = release.image("forecaster")
    neighbour = _probe_addresses(cluster, "neighbour", image, [*closed, *opened])
    cluster.require(
        lambda: neighbour == set(opened), _sentence("a pod beside it", neighbour, opened)
    )
    stranger = _probe_addresses(proof.elsewhere.cluster, "stranger", image, [*closed, *opened])
    cluster.require(lambda: not stranger, _sentence("a pod of another namespace", stranger, []))
    proof.note(
        "a pod of another namespace reached nothing, one beside the release the forecaster alone"
    )


def _sentence(pod_description: str, reached: set[str], allowed: list[str]) -> str:
    reached_text, allowed_text = (
        ", ".join(sorted(places)) or "nothing" for places in (reached, allowed)
    )
    return (
        f"{pod_description} reached {reached_text}, not {allowed_text}: does the network of this "
        "cluster obey policies?"
    )


def _probe_addresses(cluster: Cluster, name: str, image: str, places: list[str]) -> set[str]:
    """Which of them a pod of no release reaches.

    Raises Refuted if it cannot resolve one of the names.
    """
    container = {
        "name": "probe",
        "image": image,
        "command": ["python", "-c", PROBE, *places],
        "securityContext": RESTRICTED,
    }
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("create", "-f", "-", stdin_text=json.dumps(pod))
    try:
        end_condition = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", end_condition, f"pod/{name}", "--timeout=300s", seconds=320)
        probe_lines = [line.split() for line in cluster.kubectl("logs", name).splitlines()]
    finally:
        cluster.kubectl("delete", "pod", name, "--wait=false")
    unknown = [address for word, address in probe_lines if word == "unknown"]
    cluster.require(
        lambda: not unknown,
        f"{name} does not know {', '.join(unknown)}: the cluster's names do not resolve",
    )
    cluster.require(
        lambda: len(probe_lines) == len(places),
        f"{name} said {len(probe_lines)} lines about {len(places)} places",
    )
    return {reached_address for word, reached_address in probe_lines if word == "reached"}


def kueue(proof: Proof) -> None:
    """A release whose trainer is in a queue: admitted, suspended by the queue, resumed."""
    release, cluster = proof.queued, proof.cluster
    if not cluster.has("clusterqueues.kueue.x-k8s.io"):
        raise NotSeen("Kueue is not installed")
    name = cluster.namespace
    try:
        cluster.kubectl("create", "-f", "-", stdin_text=json.dumps(_queue(cluster, name)))
        release.install({"trainer.labels": {"kueue.x-k8s.io/queue-name": QUEUE}})
        cluster.until("the trainer is admitted", STEP_SECONDS, partial(_is_admitted, release))
        release.goes_on()
        _hold(cluster, name, "HoldAndDrain")
        cluster.until("the trainer has left", STEP_SECONDS, lambda: not release.pods("trainer"))
        cluster.require(
            lambda: not any(release.trainer_jobs().values()), "suspending ended the trainer's Job"
        )
        _hold(cluster, name, "None")
        release.goes_on()
        proof.note("admitted, suspended by its queue, and resumed")
    finally:
        with contextlib.suppress(Refuted):  # it may never have been installed
            release.uninstall()
        queue = (f"clusterqueue/{name}", f"resourceflavor/{name}")
        cluster.kubectl("delete", *queue, "--ignore-not-found", "--wait=false")


def _queue(cluster: Cluster, name: str) -> dict[str, Any]:
    """A queue with room for one such trainer, and its cluster-wide objects."""
    stored = "jsonpath={.spec.versions[?(@.storage==true)].name}"
    version = cluster.kubectl("get", "crd", "clusterqueues.kueue.x-k8s.io", "-o", stored)
    quotas = [{"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "4Gi"}]
    group = {
        "coveredResources": ["cpu", "memory"],
        "flavors": [{"name": name, "resources": quotas}],
    }
    objects: list[tuple[str, dict[str, str], dict[str, Any]]] = [
        ("ResourceFlavor", {"name": name}, {}),
        ("ClusterQueue", {"name": name}, {"namespaceSelector": {}, "resourceGroups": [group]}),
        ("LocalQueue", {"name": QUEUE, "namespace": cluster.namespace}, {"clusterQueue": name}),
    ]
    api = f"kueue.x-k8s.io/{version}"
    items = [
        {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}
        for kind, metadata, spec in objects
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _is_admitted(release: Release) -> bool:
    workloads = release.cluster.read("get", "workloads.kueue.x-k8s.io").get("items", [])
    return any(has_condition(workload, "Admitted") for workload in workloads)


def _hold(cluster: Cluster, queue: str, policy: str) -> None:
    patch = json.dumps({"spec": {"stopPolicy": policy}})
    cluster.kubectl(
        "patch", f"clusterqueue/{queue}", "--type=merge", "-p", patch, seconds=READY_SECONDS
    )
