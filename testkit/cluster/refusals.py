"""Installs that are refused: soon, by the name of the cause, and an uninstall leaves nothing."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from functools import partial

from testkit.cluster.life import MADE, object_name
from testkit.cluster.proof import Proof
from testkit.cluster.release import STEP_SECONDS, Release
from testkit.cluster.tools import Cluster, Refuted

NO_REGISTRY = "registry.invalid:5000"
NO_CLASS = "rollcast-no-such-class"
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "limits-of-cpus"},
    "spec": {"hard": {"limits.cpu": "100"}},
}


def no_image(proof: Proof) -> None:
    """No node can pull any image: Helm names that of the watcher; the uninstall, whose hook has no
    image, ends too.
    """
    cluster, release = proof.cluster, proof.refused
    watcher = "pull-registry.invalid-5000-library-redis"
    seconds = _time_refusal(release, f"global.imageRegistry={NO_REGISTRY}", names=watcher)
    start_seconds = time.monotonic()
    with contextlib.suppress(Refuted):  # it may fail at its hook
        release.uninstall()
    removal = time.monotonic() - start_seconds
    # The minute of the uninstall hook, and the same besides
    cluster.require(lambda: removal < 120.0, f"the uninstall took {removal:.0f} s")
    cluster.kubectl(
        "delete", f"jobs,{MADE}", "-l", release.labels(), "--ignore-not-found", seconds=STEP_SECONDS
    )
    proof.note(f"the image was named after {seconds:.0f} s; the uninstall took {removal:.0f} s")


def quota(proof: Proof) -> None:
    """A quota of the other namespace demands limits of CPUs:
    Helm prints the API server's sentence.
    """
    release = proof.elsewhere
    release.cluster.kubectl("create", "-f", "-", stdin_text=json.dumps(QUOTA))
    with _uninstall_at_end(release):
        try:
            seconds = _time_refusal(release, names="must specify limits.cpu")
        finally:
            release.cluster.kubectl("delete", "resourcequota", str(QUOTA["metadata"]["name"]))  # type: ignore[index]
    proof.note(f"the quota's reason was named after {seconds:.0f} s")


def refused_pod(proof: Proof) -> None:
    """A priority class that does not exist, which no schema knows: refused by the dry run, with
    nothing created.
    """
    release = proof.refused
    with _uninstall_at_end(release):
        _refused_by_dry_run(proof.cluster, release)
    proof.note("a priority class that does not exist was named before anything was created")


def uninstall_after_refusal(proof: Proof) -> None:
    release, cluster = proof.refused, proof.cluster
    with _uninstall_at_end(release):
        _refused_by_dry_run(cluster, release)
    kinds = f"pods,jobs,{MADE}"
    find_leftovers = partial(cluster.objects, kinds, release.labels())
    try:
        cluster.until("nothing is left", STEP_SECONDS, lambda: not find_leftovers())
    except Refuted as error:
        raise Refuted(f"{error}: {', '.join(map(object_name, find_leftovers()))}") from error
    proof.note("hooks left nothing behind after the uninstall")


def _refused_by_dry_run(cluster: Cluster, release: Release) -> None:
    release.refused_install(f"trainer.priorityClassName={NO_CLASS}")
    log = cluster.kubectl("logs", f"job/{release.full}-dry-run")
    cluster.require(
        lambda: NO_CLASS in log and "trainer" in log,
        f"the dry run does not name the class: {log[-400:]}",
    )
    created_objects = cluster.objects("deployments,statefulsets,services", release.labels())
    roles = [
        item for item in created_objects if item["metadata"]["name"] != f"{release.full}-image"
    ]
    cluster.require(lambda: not roles, "objects of the release were created")


def _time_refusal(release: Release, *values: str, names: str) -> float:
    """Seconds until Helm refused the install.

    Raises Refuted if they are too many, or the message has no such words.
    """
    start_seconds = time.monotonic()
    message = release.refused_install(*values)
    seconds = time.monotonic() - start_seconds
    release.cluster.require(lambda: names in message, f"Helm does not say {names}: {message}")
    # hooks.pullSeconds, and what Helm and the cluster need besides
    release.cluster.require(lambda: seconds < 60.0, f"Helm took {seconds:.0f} s to say so")
    return seconds


@contextlib.contextmanager
def _uninstall_at_end(release: Release) -> Iterator[None]:
    """Uninstall the release in any case."""
    try:
        yield
    finally:
        release.uninstall()
