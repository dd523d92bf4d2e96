"""What an upgrade touches and what it leaves alone, and how long a pod has to start and to end."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from rollcast.config.errors import EXIT_SUPERSEDED
from rollcast.trainer.ending import EXIT_INTERRUPTED
from tests.chart.rendering import (
    CPU,
    Object,
    merged,
    of_kind,
    one,
    pod_of,
    render,
    run_file,
    trainer_job,
)
from tests.chart.value_sets import VALUE_SETS, WITH_TRAINER

OF_BOTH_CONTROLLERS: tuple[Object, ...] = (
    {"trainer": {"backoffLimit": 3}},
    {"trainer": {"ttlSecondsAfterFinished": 60}},
    {"trainer": {"nodes": 2}, "storage": {"accessMode": "ReadWriteMany"}},
    {"trainer": {"podLabels": {"team": "rl"}}},
)
"""Changes of the trainer's values, which a Job and a JobSet keep in different places."""


@pytest.mark.parametrize(
    ("change", "restarts"),
    [
        ({"generator": {"replicas": 4}}, set()),
        ({"autoscaler": {"mode": "keda", "maxReplicas": 5}}, set()),
        ({"forecaster": {"resources": {"limits": {"memory": "1Gi"}}}}, {"forecaster"}),
        (
            {"config": {"forecaster": {"source": {"kind": "prometheus", "url": "http://p:9090"}}}},
            {"forecaster"},
        ),
        ({"config": {"budget": {"steps": 500}}}, {"trainer", "forecaster"}),
        (
            {"config": {"recipe": {"optimizer": {"learning_rate": 1e-5}}}},
            {"trainer", "generator", "forecaster"},
        ),
        ({"grader": {"enabled": True}}, {"trainer", "generator", "forecaster"}),
        ({"config": {"grader": {"processes": 8}}}, {"trainer", "generator"}),
        ({"generator": {"image": {"tag": "0.1.1-cpu"}}}, {"generator"}),
        ({"networkPolicy": {"enabled": False}, "monitoring": {"enabled": True}}, set()),
        ({"trainer": {"ttlSecondsAfterFinished": 60, "backoffLimit": 3}}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "+".join(sorted(value)),
)
def test_an_upgrade_restarts_only_what_reads_the_change(change: Object, restarts: set[str]) -> None:
    before, after = render(CPU), render(merged(CPU, change))
    changed = {
        role
        for role in ("trainer", "generator", "forecaster", "redis")
        if (pod_of(before, role).metadata, pod_of(before, role).spec)
        != (pod_of(after, role).metadata, pod_of(after, role).spec)
    }
    assert changed == restarts
    # A Job's template is immutable: other pods, other name; the same pods, the same name.
    assert (trainer_job({}) != trainer_job(change)) is ("trainer" in restarts)


@pytest.mark.parametrize(
    ("controller", "change"),
    [
        *(
            (controller, change)
            for controller in ("job", "jobset")
            for change in OF_BOTH_CONTROLLERS
        ),
        ("job", {"nameOverride": "other", "fullnameOverride": "demo-rollcast"}),
        ("job", {"podSecurity": {"runAsUser": 2000}}),
        ("job", {"generator": {"replicas": 3}}),
    ],
    ids=str,
)
def test_an_upgrade_changes_nothing_that_cannot_change(controller: str, change: Object) -> None:
    """A Job may get another backoffLimit, a JobSet may not; both may be kept longer.

    Else it is another object.
    """
    mutable = {
        "job": ("backoffLimit", "ttlSecondsAfterFinished"),
        "jobset": ("ttlSecondsAfterFinished",),
    }[controller]
    kind = {"job": "Job", "jobset": "JobSet"}[controller]
    base = merged(CPU, {"trainer": {"controller": controller}})

    def trainer(values: Object) -> tuple[str, Object]:
        (item,) = [
            item
            for item in of_kind(render(values), kind)
            if "helm.sh/hook" not in item["metadata"].get("annotations", "")
        ]
        return item["metadata"]["name"], {
            key: part for key, part in item["spec"].items() if key not in mutable
        }

    before, after = trainer(base), trainer(merged(base, change))
    assert (before[0] == after[0]) is (before[1] == after[1])


def test_a_node_that_goes_away_is_no_failure_of_a_jobset() -> None:
    """Its Job fails at once, for all ranks to begin again, with a message that the first matching
    rule knows.

    The messages are those of Kubernetes' Job controller; the reason is the same for both.
    """
    (jobset,) = of_kind(render(VALUE_SETS["jobset"]), "JobSet")
    (job,) = [entry["template"]["spec"] for entry in jobset["spec"]["replicatedJobs"]]
    on_disruption = {"type": "DisruptionTarget", "status": "True"}
    assert [
        rule["action"]
        for rule in job["podFailurePolicy"]["rules"]
        if on_disruption in rule["onPodConditions"]
    ] == ["FailJob"]

    def done(message: str) -> str:
        for rule in jobset["spec"]["failurePolicy"]["rules"]:
            patterns = rule.get("onJobFailureMessagePatterns", [])
            matches = not patterns or any(re.search(pattern, message) for pattern in patterns)
            if "PodFailurePolicy" in rule["onJobFailureReasons"] and matches:
                return str(rule["action"])
        return "RestartJobSet"

    pod = "ml/demo-rollcast-0123abcd-trainer-0-0-xyz12"
    assert done(f"Pod {pod} has condition DisruptionTarget matching FailJob rule at index 1") == (
        "RestartJobSetAndIgnoreMaxRestarts"
    )
    failed = (
        f"Container trainer for pod {pod} failed with exit code {{}} matching FailJob rule at "
        f"index {{}}"
    )
    assert done(failed.format(2, 0)) == done(failed.format(76, 0)) == "FailJobSet"
    assert done(failed.format(143, 1)) == "RestartJobSetAndIgnoreMaxRestarts", (
        "somebody deleted a pod, to move it"
    )


def _after_exit(job: Object, code: int) -> str:
    """What the first rule of a Job's pod failure policy that matches does with a trainer that ended
    so.
    """
    for rule in job["spec"]["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes")
        if (
            codes
            and codes["containerName"] == "trainer"
            and codes["operator"] == "In"
            and code in codes["values"]
        ):
            return str(rule["action"])
    return "Count"


def test_a_pod_that_was_asked_to_go_is_no_failure_of_a_job() -> None:
    """`kubectl delete pod` gives no condition DisruptionTarget:
    the trainer's own exit code tells.
    """
    (job,) = [
        item for item in of_kind(render(CPU), "Job") if "-trainer-" in item["metadata"]["name"]
    ]
    assert {
        code: _after_exit(job, code) for code in (1, 2, EXIT_SUPERSEDED, EXIT_INTERRUPTED, 137)
    } == {
        1: "Count",
        2: "FailJob",
        EXIT_SUPERSEDED: "FailJob",
        EXIT_INTERRUPTED: "Ignore",
        137: "Count",
    }


@pytest.mark.parametrize("controller", ["job", "jobset"])
def test_of_two_revisions_trainers_each_knows_which_is_to_stay(controller: str) -> None:
    """An upgrade that fails half-way has made a Job that Helm forgets, a rollback that does leaves
    two.

    All pods read two ConfigMaps, which the cluster refreshes in them: Helm changes one before it
    makes the Job, and its last hook makes the other. They know their own Job by its label;
    tests/trainer/test_launch.py has what they do then.
    """
    base = merged(CPU, {"trainer": {"controller": controller}})
    revisions = [
        render(merged(base, {"config": {"budget": {"steps": steps}}})) for steps in (224, 500, 900)
    ]
    named = [
        one(objects, "ConfigMap", "demo-rollcast-run")["data"]["rendered-trainer"]
        for objects in revisions
    ]
    assert len(set(named)) == len(revisions)
    for objects, name in zip(revisions, named, strict=True):
        pod = pod_of(objects, "trainer")
        made = pod.owner["metadata"]["name"] + ("-trainer-0" if controller == "jobset" else "")
        assert made == name
        accepted = of_kind(objects, "ConfigMap", "-accepted")
        assert [item["data"] for item in accepted] == 2 * [{"accepted-trainer": name}]
        hooks = [item["metadata"]["annotations"] for item in accepted]
        assert [hook["helm.sh/hook"] for hook in hooks] == [
            "post-install,post-upgrade,post-rollback",
            "post-delete",
        ]
        assert [hook["helm.sh/hook-delete-policy"] for hook in hooks] == [
            "before-hook-creation",
            "before-hook-creation,hook-succeeded",
        ], "the second one leaves nothing behind"
        (container,) = pod.spec["containers"]
        assert {"--job=$(JOB_NAME)", "--rendered-in=/etc/rollcast/rendered-trainer"} <= set(
            container["args"]
        )
        (own,) = [entry for entry in container["env"] if entry["name"] == "JOB_NAME"]
        assert (
            own["valueFrom"]["fieldRef"]["fieldPath"]
            == "metadata.labels['batch.kubernetes.io/job-name']"
        )
        (mount,) = [
            entry for entry in container["volumeMounts"] if entry["mountPath"] == "/etc/rollcast"
        ]
        assert "subPath" not in mount, "what is mounted by a path of its own is never refreshed"
        (volume,) = [entry for entry in pod.spec["volumes"] if entry["name"] == mount["name"]]
        assert volume["projected"]["sources"] == [
            {"configMap": {"name": "demo-rollcast-run"}},
            {"configMap": {"name": "demo-rollcast-accepted", "optional": True}},
        ], "the second is there only after the pod"


def test_priority_classes_are_named_after_what_cannot_change() -> None:
    def classes(**given: Any) -> dict[str, Object]:
        objects = render(merged(CPU, {"priorityClasses": {"create": True, **given}}))
        found = {item["metadata"]["name"]: item for item in of_kind(objects, "PriorityClass")}
        assert {
            pod_of(objects, role).spec["priorityClassName"] for role in ("trainer", "generator")
        } == set(found)
        return found

    variants = [
        classes(),
        classes(trainer=70000),
        classes(generator=-7, trainer=70000),
        classes(preemptionPolicy="PreemptLowerPriority"),
    ]
    seen: dict[str, tuple[int, str]] = {}
    for name, item in itertools.chain.from_iterable(variant.items() for variant in variants):
        fixed = (item["value"], item["preemptionPolicy"])
        assert seen.setdefault(name, fixed) == fixed
    assert {item["preemptionPolicy"] for item in variants[0].values()} == {"Never"}
    assert [
        item["preemptionPolicy"] for name, item in variants[3].items() if "-trainer-" in name
    ] == ["PreemptLowerPriority"]
    assert [
        item["preemptionPolicy"] for name, item in variants[3].items() if "-generator-" in name
    ] == ["Never"]


@pytest.mark.parametrize("name", WITH_TRAINER)
def test_a_rollout_has_longer_than_the_longest_start(name: str) -> None:
    """A generator is ready when a trainer has given it weights, which may have to start as well."""
    objects = render(VALUE_SETS[name])

    def longest(role: str) -> float:
        probe = pod_of(objects, role).spec["containers"][0]["startupProbe"]
        return float(probe["periodSeconds"] * probe["failureThreshold"])

    for deployment in of_kind(objects, "Deployment"):
        role = deployment["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        start = longest(role) + (longest("trainer") if role == "generator" else 0.0)
        assert deployment["spec"].get("progressDeadlineSeconds", 600) > start, role


@pytest.mark.parametrize("name", ["cpu", "8xh100", "scalerl-8b", "moe"])
def test_a_pod_has_time_to_drain(name: str) -> None:
    objects = render(VALUE_SETS[name])
    drain = run_file(objects)["generator"]["drain_seconds"]
    assert pod_of(objects, "generator").spec["terminationGracePeriodSeconds"] >= drain + 20
    assert pod_of(objects, "trainer").spec["terminationGracePeriodSeconds"] >= 60
