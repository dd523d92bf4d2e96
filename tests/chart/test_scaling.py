"""Who sets the number of generators, and that nobody else does."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.chart.rendering import (
    CPU,
    PROFILES,
    Object,
    merged,
    notes,
    of_kind,
    one,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("cpu", {"mode": "none"}),
        ("cpu", {"mode": "controller"}),
        *((name, {}) for name in PROFILES),
    ],
    ids=str,
)
def test_the_command_of_the_notes_that_lets_generators_go_is_accepted(
    name: str, change: Object
) -> None:
    values = merged(VALUE_SETS[name], {"autoscaler": {"letGoAtEnd": False, **change}})
    (given,) = re.findall(r"upgrade demo CHART --reuse-values --set (\S+)", notes(values))
    asked: Object = {}
    for path, _, text in (pair.partition("=") for pair in given.split(",")):
        group, key = path.split(".")
        asked.setdefault(group, {})[key] = yaml.safe_load(text)
    after = render(merged(values, asked))
    assert one(after, "Deployment", "-generator")["spec"]["replicas"] == 0


def test_replicas_are_left_to_whoever_scales() -> None:
    assert one(render(CPU), "Deployment", "-generator")["spec"]["replicas"] == 1
    for mode in ("keda", "hpa", "controller"):
        assert "replicas" not in one(render(VALUE_SETS[mode]), "Deployment", "-generator")["spec"]


@pytest.mark.parametrize("name", ["keda", "8xh100"])
def test_an_autoscaler_that_does_not_answer_lets_no_generator_go(name: str) -> None:
    """KEDA holds the number of pods where a trigger fails and there is no fallback, whatever its
    version.
    """
    objects = render(merged(VALUE_SETS[name], {"autoscaler": {"mode": "keda"}}))
    spec = one(objects, "ScaledObject")["spec"]
    assert "fallback" not in spec
    assert [trigger["type"] for trigger in spec["triggers"]] == ["external-push"]
    role = one(objects, "Role", "-autoscaler")
    assert any(
        "get" in rule["verbs"] for rule in role["rules"] if "deployments/scale" in rule["resources"]
    ), "a restarted autoscaler asks how many there are"


@pytest.mark.parametrize(
    ("mode", "controller"),
    [("keda", "job"), ("hpa", "job"), ("controller", "job"), ("keda", "jobset")],
)
def test_the_autoscaler_finds_the_trainers_jobs_and_no_others(mode: str, controller: str) -> None:
    values = {
        "autoscaler": {"mode": mode},
        "trainer": {"controller": controller},
        "nameOverride": "other",
    }
    objects = render(merged(CPU, values))
    settings = run_file(objects)["autoscaler"]
    wanted = dict(pair.split("=") for pair in settings["trainer_jobs"].split(","))
    jobs = [job["metadata"] for job in of_kind(objects, "Job")]
    jobs += [
        job["template"]["metadata"]
        for item in of_kind(objects, "JobSet")
        for job in item["spec"]["replicatedJobs"]
    ]
    (found,) = [metadata for metadata in jobs if wanted.items() <= metadata["labels"].items()]
    assert found["labels"]["app.kubernetes.io/component"] == "trainer"
    role = one(objects, "Role", "-autoscaler")
    assert ["list"] in [rule["verbs"] for rule in role["rules"] if "jobs" in rule["resources"]]
    for scaled in of_kind(objects, "ScaledObject"):
        assert scaled["spec"]["idleReplicaCount"] == 0 < scaled["spec"]["minReplicaCount"]
    assert ("lets every generator go" in notes(merged(CPU, values))) is (mode != "hpa")


def test_generators_may_be_kept_at_the_end() -> None:
    for mode in ("keda", "controller"):
        values = merged(
            CPU, {"autoscaler": {"mode": mode, "letGoAtEnd": False, "replaceTrainer": False}}
        )
        objects = render(values)
        assert "trainer_jobs" not in run_file(objects)["autoscaler"]
        role = one(objects, "Role", "-autoscaler")
        assert not [rule for rule in role["rules"] if "jobs" in rule["resources"]]
        assert all(
            "idleReplicaCount" not in item["spec"] for item in of_kind(objects, "ScaledObject")
        )
        assert "generators keep their devices" in notes(values)


@pytest.mark.parametrize(
    ("mode", "controller", "replaces"),
    [
        ("none", "job", True),
        ("keda", "job", True),
        ("hpa", "job", True),
        ("controller", "job", True),
        ("controller", "job", False),
        ("controller", "jobset", True),
    ],
)
def test_only_an_autoscaler_beside_a_job_may_make_it_again(
    mode: str, controller: str, replaces: bool
) -> None:
    """The notes name what moves the trainer without Kubernetes' growing wait."""
    scaler = {"mode": mode, "replaceTrainer": replaces, "letGoAtEnd": False}
    values = merged(CPU, {"autoscaler": scaler, "trainer": {"controller": controller}})
    objects = render(values)
    may = mode != "none" and controller == "job" and replaces
    settings = run_file(objects).get("autoscaler", {})
    rights = []
    if mode != "none":
        role = one(objects, "Role", "-autoscaler")
        rights = [rule for rule in role["rules"] if "jobs" in rule["resources"]]
    if may:
        (job,) = [
            item["metadata"]
            for item in of_kind(objects, "Job")
            if "-trainer-" in item["metadata"]["name"]
        ]
        wanted = dict(pair.split("=") for pair in settings["replaced_jobs"].split(","))
        assert wanted.items() <= job["labels"].items()
        changed = [(rule["verbs"], rule.get("resourceNames")) for rule in rights]
        assert changed == [
            (["list"], None),
            (["delete", "patch"], [job["name"]]),
            (["create"], None),
        ]
        (record,) = of_kind(objects, "ConfigMap", "-replaced-job")
        assert record["metadata"]["name"] == f"{settings['deployment']}-replaced-job"
        assert "data" not in record, "an upgrade must keep the autoscaler's"
        (kept,) = [rule for rule in role["rules"] if "configmaps" in rule["resources"]]
        assert (kept["verbs"], kept["resourceNames"]) == (
            ["get", "patch"],
            [record["metadata"]["name"]],
        )
    else:
        assert "replaced_jobs" not in settings
        assert rights == []
        assert not of_kind(objects, "ConfigMap", "-replaced-job")
    said = notes(values)
    assert ("delete pod -l" in said) is may
    assert ("delete job -l" in said) is (controller == "job" and not may)


def test_roles_autoscaler_bounds() -> None:
    objects = render(merged(VALUE_SETS["controller"], {"autoscaler": {"replaceTrainer": False}}))
    role = one(objects, "Role", "-autoscaler")
    assert not of_kind(objects, "ClusterRole")
    verbs = {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert not {verb for _, verb in verbs} & {"delete", "deletecollection", "*"}
    assert {resource for resource, verb in verbs if verb == "create"} == {"events"}
    assert not {resource for resource, _ in verbs} & {"secrets", "configmaps", "*"}
    scale = next(rule for rule in role["rules"] if "deployments/scale" in rule["resources"])
    assert scale["resourceNames"] == ["demo-rollcast-generator"]
