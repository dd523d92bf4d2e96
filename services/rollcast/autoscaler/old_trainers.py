"""Deletes a release's trainers that Helm does not know any more. The chart's hooks run it as a program:

    python -m rollcast.autoscaler.old_trainers left --namespace NAMESPACE --release NAME
    python -m rollcast.autoscaler.old_trainers all --namespace NAMESPACE --release NAME

`left`, before an upgrade and a rollback: Jobs of trainers that left for another one. Such a Job has failed, and stays
for `trainer.ttlSecondsAfterFinished`. Its name is a hash of its content, so a rollback or an upgrade to the same values
finds it, changes nothing, and nothing trains. If a Job cannot be deleted the program prints a warning and exits with 0:
an upgrade must not depend on it.

`all`, after an uninstall: Helm deletes the Job of the revision that it knows. A trainer that an upgrade left behind
notices its successor (trainer/named_trainer.py) only while the release's ConfigMap exists: running pods keep the files
of a deleted one. So every JobSet and Job with the release's labels is deleted. Their pods get SIGTERM, write a
checkpoint and free their devices.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from rollcast.autoscaler.api_server import ClusterAway, NotFound, ask, connect, list_all
from rollcast.autoscaler.deployment import was_superseded
from rollcast.config.errors import EXIT_FAILED, UserError

LABELS = "app.kubernetes.io/part-of=rollcast,app.kubernetes.io/component=trainer,app.kubernetes.io/instance="
"""Labels of every revision's trainer, followed by the release's name. Neither values nor versions change them."""


@dataclass(frozen=True)
class Kind:
    """A kind of object that has the trainer's pods."""

    name: str
    group: str
    version: str
    plural: str


JOBSET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets")
JOB = Kind("Job", "batch", "v1", "jobs")


def delete_left_trainers(api: Any, namespace: str, release: str) -> list[str]:
    """Delete Jobs of replaced trainers with their ended pods; returns them as "Job NAME". Raises ClusterAway."""
    objects = client.CustomObjectsApi(api)
    jobs = list_all(
        "list the trainer's Jobs",
        namespace,
        objects.list_namespaced_custom_object,
        *(JOB.group, JOB.version, namespace, JOB.plural),
        label_selector=f"{LABELS}{release}",
    )
    deleted = []
    for kind, name in dict.fromkeys(_owner(job) for job in jobs if was_superseded(job)):
        try:
            ask(
                f"delete the trainer's {kind.name} {name}",
                namespace,
                objects.delete_namespaced_custom_object,
                *(kind.group, kind.version, namespace, kind.plural, name),
                propagation_policy="Background",
            )
        except NotFound:
            continue  # Kubernetes has removed it by now
        deleted.append(f"{kind.name} {name}")
    return deleted


def delete_all_trainers(api: Any, namespace: str, release: str) -> list[str]:
    """Delete JobSets and Jobs with their pods; returns them as "Job NAME". Raises ClusterAway."""
    objects = client.CustomObjectsApi(api)
    deleted = []
    for kind in (JOBSET, JOB):  # a JobSet goes first: it would make its Jobs again
        try:
            answer: Any = ask(
                f"delete the trainer's {kind.name}s",
                namespace,
                objects.delete_collection_namespaced_custom_object,
                *(kind.group, kind.version, namespace, kind.plural),
                label_selector=f"{LABELS}{release}",
                # A Job's default would leave its pods running.
                propagation_policy="Background",
            )
        except NotFound:
            continue  # JobSet is not installed
        deleted += [f"{kind.name} {item['metadata']['name']}" for item in answer.get("items", [])]
    return deleted


def _owner(job: Mapping[str, Any]) -> tuple[Kind, str]:
    """The object to delete: the JobSet that made this Job, or the Job itself."""
    for owner in job["metadata"].get("ownerReferences", []):
        if owner["kind"] == JOBSET.name:
            return JOBSET, str(owner["name"])
    return JOB, str(job["metadata"]["name"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Deletes JobSets and Jobs of a release's trainer.")
    parser.add_argument("which", choices=["left", "all"], help="those that left for another trainer, or all")
    parser.add_argument("--namespace", required=True, help="of the release")
    parser.add_argument("--release", required=True, help="its name")
    given = parser.parse_args()
    try:
        api = connect("--release")
        if given.which == "all":
            deleted = delete_all_trainers(api, given.namespace, given.release)
            print("\n".join(f"deleted: {name}" for name in deleted) or "no trainer was left behind")
        else:
            for name in delete_left_trainers(api, given.namespace, given.release):
                print(f"deleted, since its trainer had left for another one: {name}")
    except (UserError, ClusterAway) as error:
        if given.which == "all":
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code if isinstance(error, UserError) else EXIT_FAILED
        remedy = "if nothing trains after this, delete the trainer's Job that failed and upgrade again"
        print(f"warning: {error}; {remedy}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
