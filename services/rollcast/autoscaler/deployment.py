"""The generators' Deployment: its scale, its pods, who else scales it, and the trainer's Jobs, for
which it works.
"""

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from rollcast.autoscaler.api_server import KubernetesApiError, ObjectNotFoundError, ask, list_all
from rollcast.config.errors import EXIT_SUPERSEDED

SOURCE = "rollcast-autoscaler"
"""Component that the events name."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MERGE_PATCH = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JOBS = ("batch", "v1", "jobs")
RECORDED = "job.json"
"""Key of the ConfigMap."""
T = TypeVar("T")


class Deployment:
    """Every method has a deadline and raises KubernetesApiError."""

    def __init__(self, api: Any, namespace: str, name: str) -> None:
        from kubernetes import client  # hundreds of modules, which no other mode of scaling needs

        self.name = name
        self._record = f"{name}-replaced-job"
        self._namespace = namespace
        self._core = client.CoreV1Api(api)
        self._apps = client.AppsV1Api(api)
        self._autoscaling = client.AutoscalingV2Api(api)
        self._custom = client.CustomObjectsApi(api)

    def rivals(self) -> list[str]:
        """HPAs and ScaledObjects that scale this Deployment too."""
        rival_names = []
        for hpa in self._list(
            "list HPAs", self._autoscaling.list_namespaced_horizontal_pod_autoscaler
        ):
            target = hpa.spec.scale_target_ref
            if target.kind == "Deployment" and target.name == self.name:
                rival_names.append(f"HorizontalPodAutoscaler {hpa.metadata.name}")
        try:
            scaled_objects = self._list_custom(
                "list ScaledObjects", "keda.sh", "v1alpha1", "scaledobjects"
            )
        except ObjectNotFoundError:
            scaled_objects = []  # KEDA is not installed
        for scaled in scaled_objects:
            target = scaled.get("spec", {}).get("scaleTargetRef", {})
            if target.get("kind", "Deployment") == "Deployment" and target.get("name") == self.name:
                rival_names.append(f"ScaledObject {scaled.get('metadata', {}).get('name')}")
        return rival_names

    def replicas(self) -> int:
        """The number asked for now."""
        return int(self._scale().spec.replicas or 0)

    def pods_there(self) -> int:
        """Pods that exist, ready or not: a quota may grant fewer than are asked for."""
        return int(self._scale().status.replicas or 0)

    def scale(self, replicas: int) -> None:
        """Ask for this many replicas."""
        patch = self._apps.patch_namespaced_deployment_scale
        address = (self.name, self._namespace)
        body = {"spec": {"replicas": replicas}}
        self._call("scale the Deployment", patch, *address, body, _content_type=MERGE_PATCH)

    def tell(self, reason: str, message: str, *, warning: bool) -> None:
        """Write an event of the Deployment, one sentence, as `kubectl describe` shows it."""
        timestamp = datetime.now(UTC).isoformat(timespec="seconds")
        target = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": self.name,
            "namespace": self._namespace,
        }
        body = {
            "metadata": {
                "name": f"{self.name[:200]}.{time.time_ns():x}",
                "namespace": self._namespace,
            },
            "involvedObject": {**target, "uid": self._scale().metadata.uid},
            "reason": reason,
            # Kubernetes refuses messages of events above 1,024 characters
            "message": message[:1_000],
            "type": "Warning" if warning else "Normal",
            "source": {"component": SOURCE},
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "count": 1,
        }
        self._call("write an event", self._core.create_namespaced_event, self._namespace, body)

    def jobs_are_complete(self, selector: str) -> bool | None:
        """Whether every Job with these labels is complete; None if there is no Job.

        A Job whose trainer left because the release names another one does not count.
        """
        jobs = [job for job in self.jobs(selector) if not was_superseded(job)]
        if not jobs:
            return None
        types = [{entry.get("type") for entry in true_conditions(job)} for job in jobs]
        return all("Complete" in of_one_job for of_one_job in types)

    def jobs(self, selector: str) -> list[dict[str, Any]]:
        """The Jobs with these labels."""
        return self._list_custom("list Jobs", *JOBS, label_selector=selector)

    def check_job(self, job: Mapping[str, Any]) -> None:
        """Ask by a dry run, under another name, whether such a Job may be created.

        Raises KubernetesApiError if not.
        """
        metadata = {
            name: value for name, value in job["metadata"].items() if name != "managedFields"
        }
        metadata["name"] = (
            f"{metadata['name'][:57]}-again"  # the name of a Job has at most 63 letters
        )
        group, version, plural = JOBS
        self._call(
            f"create the trainer's Job {job['metadata']['name']} again",
            self._custom.create_namespaced_custom_object,
            *(group, version, self._namespace, plural, {**job, "metadata": metadata}),
            dry_run="All",
            field_manager=SOURCE,
        )

    def record_job(self, job: Mapping[str, Any] | None) -> None:
        """Write a Job into the ConfigMap DEPLOYMENT-replaced-job, or empty that."""
        self._call(
            f"record the trainer's Job in ConfigMap {self._record}",
            self._core.patch_namespaced_config_map,
            *(
                self._record,
                self._namespace,
                {"data": {RECORDED: None if job is None else json.dumps(job)}},
            ),
            _content_type=MERGE_PATCH,
        )

    def recorded_job(self) -> dict[str, Any] | None:
        """The Job in that ConfigMap; None = it is empty or does not exist."""
        read_config_map = self._core.read_namespaced_config_map
        try:
            record = self._call(
                f"read ConfigMap {self._record}", read_config_map, self._record, self._namespace
            )
        except ObjectNotFoundError:
            return None
        text = (record.data or {}).get(RECORDED)
        try:
            return None if text is None else dict(json.loads(text))
        except ValueError as error:
            raise KubernetesApiError(
                f"ConfigMap {self._record} holds no Job; remove its key {RECORDED}"
            ) from error

    def delete_job(self, job: Mapping[str, Any]) -> None:
        """Delete this very Job, unless it has changed since it was read."""
        metadata = job["metadata"]
        group, version, plural = JOBS
        self._call(
            f"delete the trainer's Job {metadata['name']}",
            self._custom.delete_namespaced_custom_object,
            *(group, version, self._namespace, plural, metadata["name"]),
            body={
                "preconditions": {
                    "uid": metadata["uid"],
                    "resourceVersion": metadata["resourceVersion"],
                }
            },
            propagation_policy="Background",
        )

    def create_job(self, job: Mapping[str, Any]) -> None:
        """Create a Job as its maker did, by the fields of `managedFields`: to Helm it must be
        Helm's own.

        Helm 4, Argo CD and `kubectl apply --server-side` apply objects; the others create them.
        """
        metadata = dict(job["metadata"])
        managers = [
            entry for entry in metadata.pop("managedFields", []) if not entry.get("subresource")
        ]
        applied = [entry["manager"] for entry in managers if entry["operation"] == "Apply"]
        body = {**job, "metadata": metadata}
        action = f"create the trainer's Job {metadata['name']} again"
        group, version, plural = JOBS
        address = (group, version, self._namespace, plural)
        if applied:
            patch = self._custom.patch_namespaced_custom_object
            options = {"field_manager": applied[0], "force": True, "_content_type": APPLY}
            self._call(action, patch, *address, metadata["name"], body, **options)
        else:
            create = self._custom.create_namespaced_custom_object
            manager = managers[0]["manager"] if managers else SOURCE
            self._call(action, create, *address, body, field_manager=manager)

    def prefer_idlest(self, inflight_tokens: Mapping[str, float]) -> int:
        """Annotate pods with their tokens in flight, so that those with the fewest go; returns how
        many were written.

        `inflight_tokens`: by name or address of the pod. A pod without an entry does no known work
        and goes first. A correct annotation is not written again.
        """
        selector = self._scale().status.selector
        if not selector:
            raise KubernetesApiError(f"the scale of Deployment {self.name} has no selector")
        num_annotated = 0
        for pod in self._list("list pods", self._core.list_namespaced_pod, label_selector=selector):
            name = pod.metadata.name
            tokens = inflight_tokens.get(name, inflight_tokens.get(pod.status.pod_ip or "", 0.0))
            # The annotation is a 32-bit integer
            cost = str(min(int(tokens), 2**31 - 1))
            if (pod.metadata.annotations or {}).get(DELETION_COST, "0") == cost:
                continue
            body = {"metadata": {"annotations": {DELETION_COST: cost}}}
            try:
                patch = self._core.patch_namespaced_pod
                self._call(
                    "mark a pod", patch, name, self._namespace, body, _content_type=MERGE_PATCH
                )
            except ObjectNotFoundError:
                continue
            num_annotated += 1
        return num_annotated

    def _scale(self) -> Any:
        read_scale = self._apps.read_namespaced_deployment_scale
        return self._call("read the Deployment's scale", read_scale, self.name, self._namespace)

    def _list(self, action: str, call: Callable[..., Any], **options: Any) -> list[Any]:
        return list_all(action, self._namespace, call, self._namespace, **options)

    def _list_custom(
        self, action: str, group: str, version: str, plural: str, **options: Any
    ) -> list[dict[str, Any]]:
        call = self._custom.list_namespaced_custom_object
        return list_all(
            action, self._namespace, call, group, version, self._namespace, plural, **options
        )

    def _call(self, action: str, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        return ask(action, self._namespace, call, *arguments, **options)


def was_superseded(job: Mapping[str, Any]) -> bool:
    """Whether the Job controller reports the exit code of a replaced trainer, which the pod failure
    policy matches.
    """
    failure_text = f"failed with exit code {EXIT_SUPERSEDED} "
    return any(
        entry.get("type") == "Failed" and failure_text in entry.get("message", "")
        for entry in true_conditions(job)
    )


def true_conditions(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conditions that are true."""
    return [
        entry
        for entry in job.get("status", {}).get("conditions", [])
        if entry.get("status") == "True"
    ]
