"""Replaces a trainer's Job whose pod has left on request, so that its next pod does not wait.

The Job controller waits before it replaces a pod that has ended: 10 s, then twice as long each
time, up to ten minutes. Pods that left on request (`kubectl delete pod`, a drained node) lengthen
the wait like failures, and only a pod that succeeds ends it, which the trainer's does at the end of
its run. A new Job does not wait:

    a pod is missing, no failure was counted, for WAIT_SECONDS
        -> record the Job in a ConfigMap -> delete it
        -> create it again, as it was -> empty the record

An autoscaler that is killed in between finds the record at its next start, and creates the Job if
it is missing.

A failure that counts keeps its wait, which protects from a crash loop, and so does a Job without
pods after it was replaced: a quota or an admission holds them back. A JobSet replaces its Jobs
itself, Kueue keeps a Job's place in its queue: neither is touched.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rollcast.autoscaler.deployment import Deployment, true_conditions

WAIT_SECONDS = 12.0
"""How long a pod must be missing. Exceeds the Job controller's first wait, which needs no help."""
OWN_LABELS = (
    "controller-uid",
    "job-name",
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
)
"""Labels of a Job's pods that the API server adds."""
QUEUE_LABELS = "kueue.x-k8s.io/"
LAST_CONDITIONS = frozenset({"Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"})


class MovedTrainer:
    """Call `look` every few seconds."""

    def __init__(self, deployment: Deployment, selector: str) -> None:
        """`selector`: labels of the trainer's Jobs."""
        self._deployment = deployment
        self._selector = selector
        self._uid = ""
        self._counted_failures = 0
        """Failures of the Job when it last had all of its pods."""
        self._had_pods = True
        """Whether the Job had all of its pods since it was replaced."""
        self._missing_since: float | None = None
        self._recorded: dict[str, Any] | None = None
        """A Job that is deleted, or soon will be, and is not created again so far."""
        self._has_read_record = False

    def look(self, now_seconds: float) -> str | None:
        """The name of the Job if it was replaced now.

        Raises KubernetesApiError; the next look then goes on.
        """
        if not self._has_read_record:
            self._recorded = self._deployment.recorded_job()
            self._has_read_record = True
        every_job = self._deployment.jobs(self._selector)
        if self._recorded is not None:
            return self._create(every_job)
        jobs = [job for job in every_job if not _is_over(job)]
        # Two are there during an upgrade: one of them leaves.
        if len(jobs) != 1 or not self._waits(jobs[0], now_seconds):
            return None
        again = as_new(jobs[0])
        self._deployment.check_job(again)  # a quota or a webhook may refuse it now
        self._deployment.record_job(again)
        self._recorded = again
        self._deployment.delete_job(jobs[0])
        return self._create([])

    def _waits(self, job: Mapping[str, Any], now_seconds: float) -> bool:
        """Whether the Job's controller has waited long enough, only for a pod
        that left on request.
        """
        status = job.get("status", {})
        failures = status.get("failed", 0)
        if job["metadata"]["uid"] != self._uid:
            self._uid = job["metadata"]["uid"]
            self._counted_failures = 0
            self._missing_since = None
        if _is_held(job) or status.get("uncountedTerminatedPods", {}).get("failed"):
            self._missing_since = None
        elif status.get("active", 0) + status.get("succeeded", 0) >= job["spec"].get(
            "parallelism", 1
        ):
            self._counted_failures = failures
            self._had_pods = True
            self._missing_since = None
        elif self._had_pods and failures <= self._counted_failures:
            if self._missing_since is None:
                self._missing_since = now_seconds
            return now_seconds - self._missing_since >= WAIT_SECONDS
        return False

    def _create(self, jobs: list[dict[str, Any]]) -> str | None:
        """Create the recorded Job unless one is present: Helm's, the new one, or the old one, which
        was not deleted.
        """
        assert self._recorded is not None
        name = str(self._recorded["metadata"]["name"])
        present = [
            job["metadata"] for job in jobs if job["metadata"]["name"] == name or not _is_over(job)
        ]
        if any("deletionTimestamp" in metadata for metadata in present):
            return None
        if not present:
            self._deployment.create_job(self._recorded)
        self._deployment.record_job(None)
        self._recorded = None
        # After a start of the autoscaler it is not known which Job had pods.
        self._had_pods = any(self._uid in ("", metadata["uid"]) for metadata in present)
        return None if self._had_pods else name


def as_new(job: Mapping[str, Any]) -> dict[str, Any]:
    """The Job as its maker wrote it, with the fields by which the API server finds out who that
    was.
    """
    metadata = job["metadata"]
    metadata_fields = ("name", "namespace", "labels", "annotations", "managedFields")
    spec = copy.deepcopy(job["spec"])
    spec.pop("selector", None)
    labels = spec["template"]["metadata"].get("labels", {})
    spec["template"]["metadata"]["labels"] = {
        name: text for name, text in labels.items() if name not in OWN_LABELS
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {name: metadata[name] for name in metadata_fields if name in metadata},
        "spec": spec,
    }


def _is_over(job: Mapping[str, Any]) -> bool:
    return any(entry["type"] in LAST_CONDITIONS for entry in true_conditions(job))


def _is_held(job: Mapping[str, Any]) -> bool:
    """Whether the Job lacks a pod for another reason, or is another controller's."""
    metadata = job["metadata"]
    return bool(
        job["spec"].get("suspend")
        or job.get("status", {}).get("terminating")
        or "deletionTimestamp" in metadata
        or metadata.get("ownerReferences")
        or any(name.startswith(QUEUE_LABELS) for name in metadata.get("labels", {}))
    )
