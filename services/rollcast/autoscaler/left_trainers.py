"""`python -m rollcast.autoscaler.left_trainers`: deletes the Jobs of trainers that left for another one.

Such a Job has failed, and stays for `trainer.ttlSecondsAfterFinished`. Its name is a hash of its content, so a rollback
or an upgrade to the same values finds it, changes nothing, and nothing trains. The chart runs this program before both.
If it cannot delete a Job it prints a warning and exits with 0: an upgrade must not depend on it.
"""

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from kubernetes import client

from rollcast.autoscaler.api_server import ClusterAway, NotFound, ask, connect
from rollcast.autoscaler.forgotten_trainers import JOB, JOBSET, LABELS, Kind
from rollcast.config.errors import EXIT_SUPERSEDED, UserError

MAX_PAGES = 100
"""Pages of one list, more than a namespace has for one release."""


def delete_left_trainers(api: Any, namespace: str, release: str) -> list[str]:
    """Delete these Jobs with their ended pods; returns them as "Job NAME". Raises ClusterAway."""
    objects = client.CustomObjectsApi(api)
    left = [job for job in _jobs(objects, namespace, release) if _has_left(job)]
    deleted = []
    for kind, name in dict.fromkeys(_owner(job) for job in left):
        try:
            ask(
                f"delete the trainer's {kind.name} {name}",
                namespace,
                objects.delete_namespaced_custom_object,
                *(kind.group, kind.version, namespace, kind.plural, name),
                propagation_policy="Background",
            )
        except NotFound:
            continue  # it was kept long enough
        deleted.append(f"{kind.name} {name}")
    return deleted


def _jobs(objects: Any, namespace: str, release: str) -> Iterator[dict[str, Any]]:
    """Every Job of the release's trainers."""
    following: str | None = None
    for _ in range(MAX_PAGES):
        answer = ask(
            "list the trainer's Jobs",
            namespace,
            objects.list_namespaced_custom_object,
            *(JOB.group, JOB.version, namespace, JOB.plural),
            label_selector=f"{LABELS}{release}",
            **({"_continue": following} if following else {}),
        )
        yield from answer.get("items", [])
        following = answer.get("metadata", {}).get("continue")
        if not following:
            return
    raise ClusterAway(f"cannot list the trainer's Jobs: more than {MAX_PAGES} pages of them")


def _has_left(job: dict[str, Any]) -> bool:
    """Whether its trainer ended because the release has another one, by the exit code that Kubernetes reports."""
    said = f"failed with exit code {EXIT_SUPERSEDED} "
    return any(
        entry.get("type") == "Failed" and entry.get("status") == "True" and said in entry.get("message", "")
        for entry in job.get("status", {}).get("conditions", [])
    )


def _owner(job: dict[str, Any]) -> tuple[Kind, str]:
    """The object to delete: the JobSet that made this Job, or the Job itself."""
    for owner in job["metadata"].get("ownerReferences", []):
        if owner["kind"] == JOBSET.name:
            return JOBSET, str(owner["name"])
    return JOB, str(job["metadata"]["name"])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.autoscaler.left_trainers",
        description="Deletes the Jobs and JobSets of a release's trainers that left for another one.",
    )
    parser.add_argument("--namespace", required=True, help="of the release")
    parser.add_argument("--release", required=True, help="its name")
    given = parser.parse_args()
    try:
        deleted = delete_left_trainers(connect("--release"), given.namespace, given.release)
    except (UserError, ClusterAway) as error:
        print(
            f"warning: {error}; if nothing trains after this, delete the trainer's Job that failed and upgrade again",
            file=sys.stderr,
        )
        return 0
    for name in deleted:
        print(f"deleted, since its trainer had left for another one: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
