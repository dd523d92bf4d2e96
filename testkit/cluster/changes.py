"""Upgrades: of each kind, one that fails half-way, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from testkit.cluster.proof import Proof
from testkit.cluster.release import READY_SECONDS, STEP_SECONDS
from testkit.cluster.tools import NotSeen

SETTLED = ("trainer", "generator", "redis", "forecaster")
SCALERS = ("scaledobjects.keda.sh", "horizontalpodautoscalers")
FIRST_STEPS = 100_000
"""Budget of values.yaml; every other one makes another trainer's Job."""


@dataclass(frozen=True)
class Change:
    """An upgrade.

    Attributes: its values; roles whose pods are replaced; roles that must be ready besides.
    """

    values: tuple[str, ...]
    replaces: frozenset[str]
    brings: tuple[str, ...] = ()


def _change(*values: str, replaces: str = "", brings: str = "") -> Change:
    return Change(values, frozenset(replaces.split()), tuple(brings.split()))


NO_AUTOSCALER = "autoscaler.mode=none"
UPGRADES: dict[str, Change] = {
    "another number of generators": _change(NO_AUTOSCALER, "generator.replicas=2"),
    "another budget": _change(
        f"config.budget.steps={FIRST_STEPS + 1}", replaces="trainer forecaster"
    ),
    "another recipe": _change(
        "config.recipe.optimizer.warmup_steps=100", replaces="trainer generator forecaster"
    ),
    "resources of the forecaster": _change(
        "forecaster.resources.limits.memory=1Gi", replaces="forecaster"
    ),
    "resources of the trainer": _change("trainer.resources.limits.memory=5Gi", replaces="trainer"),
    "resources of the generators": _change(
        "generator.resources.limits.memory=7Gi", replaces="generator"
    ),
    "another image of the trainer": _change("trainer.image.tag=SECOND_TAG", replaces="trainer"),
    "another image of the generators": _change(
        "generator.image.tag=SECOND_TAG", replaces="generator"
    ),
    "an autoscaler": _change(
        "autoscaler.mode=controller", "autoscaler.maxReplicas=1", brings="autoscaler"
    ),
    "no autoscaler": _change(NO_AUTOSCALER),
    "graders": _change(
        "grader.enabled=true", replaces="trainer generator forecaster", brings="grader"
    ),
    "priority classes": _change("priorityClasses.create=true", replaces="trainer generator"),
    "another priority": _change("priorityClasses.trainer=70000", replaces="trainer"),
}
"""The cases of tests/chart/test_upgrades.py for the templates. SECOND_TAG: of images that nodes
have as well."""
AFFINITY_WITHOUT_VALUES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In"}]}]
        }
    }
}
REFUSED = {
    "a wrong run file": "config.recipe.prompts_per_step=-1",
    (
        "a claim that cannot change"
    ): f"redis.persistence.size=2Gi,config.budget.steps={FIRST_STEPS + 2}",
}
"""Refused before anything is changed: by the check of the run file, and while the chart is
rendered."""


def refused_object(proof: Proof) -> dict[str, Any]:
    """An object that every API server refuses, though its schema is right: Helm sends it, after the
    trainer's Job, and ends there."""
    container = {"name": "never", "image": "never"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"{proof.release.full}-refused"},
        "spec": {"schedule": "never", "jobTemplate": {"spec": {"template": template}}},
    }


def upgrade(change: Change, proof: Proof) -> None:
    release = proof.release
    values = change.values
    if any("SECOND_TAG" in value for value in values):
        if proof.second_tag is None:
            raise NotSeen("SECOND_TAG names no second tag of the images that nodes have")
        values = tuple(value.replace("SECOND_TAG", proof.second_tag) for value in values)
    uids_before = release.uids()
    if NO_AUTOSCALER in values:
        end_autoscaling(proof, *values)
    else:
        release.upgrade(*values)
    release.has_one_trainer()
    release.wait_ready(*(role for role in SETTLED if role != "trainer"), *change.brings)
    release.goes_on()
    uids_after = release.uids()
    replaced_roles = {
        role
        for role in SETTLED
        if uids_before[role] - uids_after[role] and uids_after[role] - uids_before[role]
    }
    proof.cluster.require(
        lambda: replaced_roles == change.replaces,
        f"replaced {sorted(replaced_roles)}, not {sorted(change.replaces)}",
    )
    proof.note(f"replaced: {', '.join(sorted(change.replaces)) or 'nothing'}; never two trainers")


def end_autoscaling(proof: Proof, *values: str) -> None:
    """With these values, NO_AUTOSCALER one of them, twice: what scales may do so once more during
    the first upgrade.
    """
    proof.release.upgrade(*values, takes_over=True)
    cluster, labels = proof.cluster, proof.release.labels()
    for kind in (kind for kind in SCALERS if cluster.has(kind)):
        cluster.until(
            f"no {kind}",
            STEP_SECONDS,
            lambda kind=kind: not cluster.objects(kind, labels),  # type: ignore[misc]
        )
    proof.release.upgrade(*values, takes_over=True)


def failed_upgrade(proof: Proof) -> None:
    """Refused upgrades change nothing; whichever object an API server refuses, the trainer before
    goes on.
    """
    release, cluster = proof.release, proof.cluster
    for change, value in REFUSED.items():
        uids_before = release.uids()
        refusal = release.refused_upgrade(*value.split(","))
        cluster.require(
            partial(_still, proof, uids_before), f"{change}: refused, but pods were replaced"
        )
        proof.note(f"{change}: {' '.join(refusal.split())[-120:]}")
    _refused_at_the_trainer(proof)
    first = set(release.trainer_jobs())
    trainer = release.uids()["trainer"]
    broken = {"extraObjects": [refused_object(proof)]}
    release.refused_upgrade(f"config.budget.steps={FIRST_STEPS + 3}", parts=broken)
    second = set(release.trainer_jobs()) - first
    cluster.require(
        lambda: len(second) == 1, "the upgrade did not fail half-way: it made no Job of the trainer"
    )
    _stays(proof, trainer)
    release.upgrade(f"config.budget.steps={FIRST_STEPS + 4}")
    _leaves(proof, second)
    release.goes_on()
    proof.note(
        "half-way: the former trainer stayed, then the one that Helm had forgotten left with 76; "
        "one trains"
    )
    release.upgrade(f"config.budget.steps={FIRST_STEPS + 3}")
    release.has_one_trainer()
    release.goes_on()
    proof.note("back to the Job that had left: a new one trains")


def _refused_at_the_trainer(proof: Proof) -> None:
    """The schema accepts an operator without its values, no API server does; then back, to what
    Helm has deployed.
    """
    release = proof.release
    trainer = release.uids()["trainer"]
    release.refused_upgrade(
        "hooks.dryRun=false", parts={"trainer.affinity": AFFINITY_WITHOUT_VALUES}
    )
    _stays(proof, trainer)
    release.roll_back(release.deployed_revision())
    _stays(proof, trainer)
    proof.note("refused at the trainer's Job: the trainer stayed, and so it did after a rollback")


def _stays(proof: Proof, trainer: set[str]) -> None:
    """Require the same pod at work for longer than a trainer waits that must leave for another."""
    release = proof.release
    # Time within which a trainer that is to leave notices it and ends:
    # named_trainer.PATIENCE_SECONDS, the kubelet's two minutes, a last step
    proof.cluster.always(
        330.0, lambda: trainer <= release.uids()["trainer"], "the former trainer has left"
    )
    release.goes_on()


def _leaves(proof: Proof, jobs: set[str]) -> None:
    """No Job of these is at work, at least one left for another trainer, and one trainer is
    running.
    """

    def has_left() -> bool:
        ends = {name: end for name, end in proof.release.trainer_jobs().items() if name in jobs}
        return all(ends.values()) and "superseded" in ends.values()

    forgotten = "the trainer that Helm has forgotten has left with 76"
    proof.cluster.until(forgotten, STEP_SECONDS, has_left)
    proof.release.has_one_trainer()


def _still(proof: Proof, uids_before: dict[str, set[str]]) -> bool:
    return all(uids_before[role] == pods for role, pods in proof.release.uids().items())


def rollback(proof: Proof) -> None:
    """Roll back to the oldest revision that Helm still keeps (ten by default) and that was deployed
    once.
    """
    revisions = proof.release.former_revisions()
    if not revisions and proof.cluster.recorded is None:
        raise NotSeen("Helm keeps no earlier revision that was deployed")
    revision = min(revisions, default=1)
    proof.release.roll_back(revision)
    proof.release.has_one_trainer()
    proof.release.wait_ready("generator", "forecaster")
    proof.release.goes_on()
    proof.note(f"to revision {revision}, the oldest that Helm keeps: one trainer, and steps go on")


def jobset(proof: Proof) -> None:
    """Change from a Job to a JobSet, delete one of its pods, and change back."""
    release, cluster, kind = proof.release, proof.cluster, "jobsets.jobset.x-k8s.io"
    if not cluster.has(kind):
        raise NotSeen("the JobSet operator is not installed")
    release.upgrade("trainer.controller=jobset")
    release.has_one_trainer()
    release.goes_on()
    uids_before = release.uids()["trainer"]
    cluster.kubectl("delete", "pod", "-l", release.labels("trainer"), seconds=READY_SECONDS)
    release.wait_replaced("trainer", uids_before)
    release.goes_on()
    counted = [
        item["status"].get("restartsCountTowardsMax", 0)
        for item in cluster.objects(kind, release.labels())
    ]
    cluster.require(lambda: counted == [0], f"restarts that count, by JobSet: {counted}, not [0]")
    release.upgrade("trainer.controller=job")
    release.has_one_trainer()
    release.goes_on()
    proof.note(
        "from a Job to a JobSet and back; a pod that was deleted began it again and counted as no "
        "failure"
    )


CHANGES: dict[str, Callable[[Proof], None]] = {
    f"upgrade: {name}": partial(upgrade, change) for name, change in UPGRADES.items()
}
