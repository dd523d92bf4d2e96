"""The chart on a real cluster, whichever the kubeconfig names: a table of the observations;
results/cluster.json.

    python -m benchmarks.cluster [--namespace rollcast-proof] [--only STEP ...] [--keep]

It makes two namespaces, NAMESPACE and NAMESPACE-2, refuses them if they exist, and removes them at
the end. Beyond them it cordons one node while it drains its own pods from it, and makes priority
classes and, where Kueue is, a queue and a flavor of the namespace's name, which it removes. Nodes
must be able to fetch the chart's images. Environment: KUBECONFIG; PROMETHEUS and GRAFANA, the
services that are asked for the dashboards' queries, each as namespace/name:port, Grafana's
administrator in the Secret of the service's name; SECOND_TAG, under which nodes find the images of
trainer and generator as well.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from testkit.cluster.proof import prepare
from testkit.cluster.steps import STEPS, look
from testkit.cluster.tools import Cluster, Refuted
from testkit.record import write_result

GONE_SECONDS = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="The chart on a real cluster: a table of what was seen."
    )
    parser.add_argument("--namespace", default="rollcast-proof")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=STEPS,
        default=list(STEPS),
        metavar="STEP",
        help=", ".join(STEPS),
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the namespaces as they are at the end"
    )
    given = parser.parse_args()
    if missing := [program for program in ("kubectl", "helm") if shutil.which(program) is None]:
        sys.exit(
            f"{' and '.join(missing)} not found: install it, and point KUBECONFIG at a cluster"
        )
    proof = prepare(given.namespace)
    try:
        version = json.loads(proof.cluster.kubectl("version", "-o", "json"))["serverVersion"][
            "gitVersion"
        ]
    except (Refuted, KeyError) as error:
        sys.exit(f"no cluster answers: point KUBECONFIG at one ({error})")
    clusters = (proof.cluster, proof.elsewhere.cluster)
    for number, cluster in enumerate(clusters):
        try:
            create_namespace(cluster)
        except Refuted as error:
            remove(clusters[:number])
            sys.exit(
                f"a namespace of the test cannot be made; name another with --namespace ({error})"
            )
    found: dict[str, dict[str, Any]] = {}
    try:
        for step in STEPS:
            chosen = step in given.only
            found[step] = (
                look(proof, step)
                if chosen
                else {"verdict": "not seen", "seconds": 0, "note": "not asked for"}
            )
            print(
                (
                    f"{found[step]['verdict']:9} {step:40}{found[step]['seconds']:6} s  "
                    f"{found[step]['note']}"
                ),
                flush=True,
            )
    finally:
        if not given.keep:
            with contextlib.suppress(Refuted):  # its last step has done so, if all went well
                proof.release.uninstall()  # priority classes are in no namespace
            remove(clusters)
    path = write_result("cluster", {"kubernetes": version, "steps": found})
    print(f"written to {path}")
    return int(any(row["verdict"] == "FAILED" for row in found.values()))


def create_namespace(cluster: Cluster) -> None:
    """Under Pod Security restricted.

    Raises Refuted if it exists, because its contents are not ours to remove.
    """
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": cluster.namespace, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    cluster.kubectl("create", "-f", "-", stdin_text=json.dumps(body))


def remove(clusters: Sequence[Cluster]) -> None:
    """Their namespaces, each whatever became of the others."""
    for cluster in clusters:
        try:
            cluster.kubectl(
                "delete", "namespace", cluster.namespace, "--ignore-not-found", seconds=GONE_SECONDS
            )
        except Refuted as error:
            print(
                f"namespace {cluster.namespace} is still there; remove it by hand ({error})",
                file=sys.stderr,
            )


if __name__ == "__main__":
    sys.exit(main())
