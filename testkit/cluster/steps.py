"""The checks on a cluster, in order.

Each step leaves the release at work, or the next one fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from testkit.cluster.changes import CHANGES, failed_upgrade, jobset, rollback
from testkit.cluster.life import drain, helm_test, install, kill_each_pod, second_release, uninstall
from testkit.cluster.moves import away, engine_killed, move_trainer, two_pods
from testkit.cluster.proof import Proof
from testkit.cluster.refusals import no_image, quota, refused_pod, uninstall_after_refusal
from testkit.cluster.surroundings import kueue, policies, scaling
from testkit.cluster.tools import NotSeen, Refuted
from testkit.cluster.watching import dashboards, grafana

STEPS: dict[str, Callable[[Proof], None]] = {
    "install": install,
    "helm test": helm_test,
    "each pod killed": kill_each_pod,
    "a node drained": drain,
    "the trainer moved": move_trainer,
    "the trainer away": away,
    "two trainer pods": two_pods,
    "an engine killed": engine_killed,
    # After the killing, because some panels count losses.
    "the dashboards' queries": dashboards,
    "Grafana": grafana,
    "scaling with KEDA": scaling,
    **CHANGES,
    "policies": policies,
    "an upgrade that fails": failed_upgrade,
    "JobSet": jobset,
    "a rollback": rollback,
    "a second release": second_release,
    "Kueue": kueue,
    "no image": no_image,
    "a quota on CPU limits": quota,
    "a pod that the API server refuses": refused_pod,
    "an uninstall after a refusal": uninstall_after_refusal,
    "uninstall": uninstall,
}


def look(proof: Proof, step: str) -> dict[str, Any]:
    """Take one step and return its observations."""
    start_seconds = time.monotonic()
    proof.notes.clear()
    verdict = "seen"
    try:
        STEPS[step](proof)
    except NotSeen as lack:
        verdict = "not seen"
        proof.note(str(lack))
    except Refuted as fault:
        verdict = "FAILED"
        proof.note(str(fault))
    return {
        "verdict": verdict,
        "seconds": round(time.monotonic() - start_seconds),
        "note": "; ".join(proof.notes),
    }
