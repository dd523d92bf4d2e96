"""`python -m rollcast.autoscaler.forgotten_trainers`: deletes the trainers that an uninstall leaves behind.

Helm deletes the Job of the revision that it knows. A trainer that an upgrade left behind notices its successor
(trainer/named_trainer.py) only while the release's ConfigMap exists: running pods keep the files of a deleted one. So
the chart's last hook deletes every JobSet and Job with the release's labels. Their pods get SIGTERM, write a checkpoint
and free their devices.
"""

import argparse
import sys
from dataclasses import dataclass
from typing import Any

from kubernetes import client

from rollcast.autoscaler.api_server import ClusterAway, NotFound, ask, connect
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


def delete_trainers(api: Any, namespace: str, release: str) -> list[str]:
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


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.autoscaler.forgotten_trainers",
        description="Deletes every JobSet and Job of a release's trainer, whichever revision made it.",
    )
    parser.add_argument("--namespace", required=True, help="of the release")
    parser.add_argument("--release", required=True, help="its name")
    given = parser.parse_args()
    try:
        deleted = delete_trainers(connect("--release"), given.namespace, given.release)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except ClusterAway as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED
    print("\n".join(f"deleted: {name}" for name in deleted) or "no trainer was left behind")
    return 0


if __name__ == "__main__":
    sys.exit(main())
