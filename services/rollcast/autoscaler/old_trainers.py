"""Deletes a release's trainers that Helm does not know any more. The chart's hooks run it as a
program:

    python -m rollcast.autoscaler.old_trainers left --namespace NAMESPACE --release NAME
    python -m rollcast.autoscaler.old_trainers all --namespace NAMESPACE --release NAME
                                                   [--hook NAME ...]

`left`, before an upgrade and a rollback: Jobs of trainers that left for another one. Such a Job has
failed, and stays for `trainer.ttlSecondsAfterFinished`. Its name is a hash of its content, so a
rollback or an upgrade to the same values finds it, changes nothing, and nothing trains. If a Job
cannot be deleted the program prints a warning and exits with 0: an upgrade must not depend on it.

`all`, after an uninstall: Helm deletes the Job of the revision that it knows. A trainer that an
upgrade left behind notices its successor (trainer/named_trainer.py) only while the release's
ConfigMap exists: running pods keep the files of a deleted one. So every JobSet and Job with the
release's labels is deleted. Their pods get SIGTERM, write a checkpoint and free their devices.
After a refused upgrade Helm keeps objects of the hooks before it: those with the names of `--hook`
are deleted too.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rollcast.autoscaler.api_server import (
    KubernetesApiError,
    ObjectNotFoundError,
    ask,
    connect,
    list_all,
)
from rollcast.autoscaler.deployment import was_superseded
from rollcast.config.errors import EXIT_FAILED, UserError

LABELS = (
    "app.kubernetes.io/part-of=rollcast,app.kubernetes.io/component=trainer,"
    "app.kubernetes.io/instance="
)
"""Labels of every revision's trainer, followed by the release's name. Neither values nor versions
change them."""
HOOK_KINDS = (
    ("BatchV1Api", "job"),
    ("AppsV1Api", "stateful_set"),
    ("CoreV1Api", "pod"),
    ("CoreV1Api", "config_map"),
    ("CoreV1Api", "service_account"),
    ("NetworkingV1Api", "network_policy"),
    ("RbacAuthorizationV1Api", "role_binding"),
    ("RbacAuthorizationV1Api", "role"),
)
"""Kinds that hooks make, by the client's names; those that start pods come first."""


class Kind(NamedTuple):
    """A kind of object that has the trainer's pods."""

    name: str
    group: str
    version: str
    plural: str


JOBSET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets")
JOB = Kind("Job", "batch", "v1", "jobs")


def delete_left_trainers(api: Any, namespace: str, release: str) -> list[str]:
    """Delete Jobs of replaced trainers with their ended pods; returns them as "Job NAME".

    Raises KubernetesApiError.
    """
    from kubernetes import client

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
        except ObjectNotFoundError:
            continue  # Kubernetes has removed it by now
        deleted.append(f"{kind.name} {name}")
    return deleted


def delete_all_trainers(api: Any, namespace: str, release: str) -> list[str]:
    """Delete JobSets and Jobs with their pods; returns them as "Job NAME".

    Raises KubernetesApiError.
    """
    from kubernetes import client

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
        except ObjectNotFoundError:
            continue  # JobSet is not installed
        deleted += [f"{kind.name} {item['metadata']['name']}" for item in answer.get("items", [])]
    return deleted


def delete_hooks(api: Any, namespace: str, names: Sequence[str]) -> list[str]:
    """Delete the objects of hooks with these names; returns them as "Job NAME".

    Raises KubernetesApiError.
    """
    from kubernetes import client

    deleted = []
    for (group, kind), name in itertools.product(HOOK_KINDS, names):
        words = kind.title().replace("_", "")
        delete = getattr(getattr(client, group)(api), f"delete_namespaced_{kind}")
        try:
            ask(
                f"delete the {words} {name}",
                namespace,
                delete,
                name,
                namespace,
                propagation_policy="Background",
            )
        except ObjectNotFoundError:
            continue
        deleted.append(f"{words} {name}")
    return deleted


def _owner(job: Mapping[str, Any]) -> tuple[Kind, str]:
    """The object to delete: the JobSet that made this Job, or the Job itself."""
    for owner in job["metadata"].get("ownerReferences", []):
        if owner["kind"] == JOBSET.name:
            return JOBSET, str(owner["name"])
    return JOB, str(job["metadata"]["name"])


def main() -> int:
    parser = argparse.ArgumentParser(description="Deletes JobSets and Jobs of a release's trainer.")
    parser.add_argument(
        "which", choices=["left", "all"], help="those that left for another trainer, or all"
    )
    parser.add_argument("--namespace", required=True, help="of the release")
    parser.add_argument("--release", required=True, help="its name")
    parser.add_argument(
        "--hook", action="append", default=[], help="name of objects that hooks left, with `all`"
    )
    arguments = parser.parse_args()
    try:
        api = connect("--release")
        if arguments.which == "all":
            deleted = delete_all_trainers(api, arguments.namespace, arguments.release)
            deleted += delete_hooks(api, arguments.namespace, arguments.hook)
            print("\n".join(f"deleted: {name}" for name in deleted) or "nothing was left behind")
        else:
            for name in delete_left_trainers(api, arguments.namespace, arguments.release):
                print(f"deleted, since its trainer had left for another one: {name}")
    except (UserError, KubernetesApiError) as error:
        if arguments.which == "all":
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code if isinstance(error, UserError) else EXIT_FAILED
        remedy = (
            "if nothing trains after this, delete the trainer's Job that failed and upgrade again"
        )
        print(f"warning: {error}; {remedy}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
