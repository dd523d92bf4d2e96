"""Releases, values and notes that the steps of the cluster test share."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from testkit.cluster.release import Release
from testkit.cluster.tools import Cluster

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Fields that Pod Security "restricted" demands of a container."""


@dataclass
class Proof:
    """The releases and the surroundings that steps look at."""

    cluster: Cluster
    release: Release
    beside: Release
    """Release in the same namespace."""
    queued: Release
    """Release in the same namespace, in a queue of Kueue."""
    refused: Release
    """Release in the same namespace that is always refused."""
    pair: Release
    """Release in the same namespace, whose trainer is two pods."""
    elsewhere: Release
    """Release in another namespace with the first one's name."""
    prometheus: str | None
    """Service that is asked, as namespace/name:port; None = none."""
    grafana: str | None
    """Address of Grafana. Its administrator is in the Secret of the service's name."""
    second_tag: str | None
    """Tag under which nodes find the images of trainer and generator as well; None = none."""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Add a note to the row of this step in the table."""
        self.notes.append(text)


def prepare(namespace: str, recorded: list[list[str]] | None = None) -> Proof:
    """The releases, in `namespace` and in a second one, which the test makes."""
    two_pods = ("trainer.nodes=2", "storage.accessMode=ReadWriteMany")
    cluster, other_cluster = Cluster(namespace, recorded), Cluster(f"{namespace}-2", recorded)
    return Proof(
        cluster=cluster,
        release=Release(cluster, "proof"),
        beside=Release(cluster, "beside", "config.run=beside"),
        queued=Release(cluster, "queued", "config.run=queued"),
        refused=Release(cluster, "refused", "config.run=refused"),
        pair=Release(cluster, "pair", "config.run=pair", *two_pods),
        elsewhere=Release(other_cluster, "proof"),
        prometheus=os.environ.get("PROMETHEUS"),
        grafana=os.environ.get("GRAFANA"),
        second_tag=os.environ.get("SECOND_TAG"),
    )
