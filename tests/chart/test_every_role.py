"""`everyRole`: what six roles share is said once, and a role's own value comes first."""

from __future__ import annotations

import pytest

from tests.chart.rendering import CPU, Object, helm_errors, merged, pod_of, pods, render
from tests.chart.value_sets import VALUE_SETS

ROLES = ("generator", "trainer", "forecaster", "autoscaler", "grader", "redis")
ALL = merged(
    CPU, {"autoscaler": {"mode": "controller"}, "grader": {"enabled": True, "runtimeClassName": ""}}
)
SHARED: Object = {
    "resources": {"limits": {"cpu": 8}},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "envFrom": [{"configMapRef": {"name": "proxies"}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
    "annotations": {"a": "shared"},
    "labels": {"l": "shared"},
    "podAnnotations": {"pa": "shared"},
    "podLabels": {"pl": "shared"},
    "nodeSelector": {"pool": "rl"},
    "tolerations": [{"key": "rl", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "schedulerName": "volcano",
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
}


@pytest.mark.parametrize("base", [ALL, merged(VALUE_SETS["jobset"], {})], ids=["job", "jobset"])
def test_it_says_the_same_as_six_equal_blocks(base: Object) -> None:
    shared = {field: value for field, value in SHARED.items() if field != "resources"}
    assert said(render(merged(base, {"everyRole": shared}))) == said(
        render(merged(base, dict.fromkeys(ROLES, shared)))
    )


def said(objects: list[Object]) -> list[Object]:
    return [item for item in objects if item["kind"] != "Secret"]


def test_a_role_comes_first() -> None:
    own: Object = {
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "mine"}, {"name": "MORE", "value": "1"}],
        "nodeSelector": {"pool": "mine"},
        "tolerations": [{"key": "mine", "operator": "Exists"}],
        "schedulerName": "mine",
        "resources": {"limits": {"cpu": 2}},
    }
    objects = render(merged(ALL, {"everyRole": SHARED, "trainer": own}))
    trainer, generator = (pod_of(objects, role) for role in ("trainer", "generator"))
    (container,) = trainer.spec["containers"]
    variables = [(entry["name"], entry.get("value")) for entry in container["env"]]
    assert [entry for entry in variables if entry[0] in ("HTTPS_PROXY", "MORE")] == [
        ("HTTPS_PROXY", "mine"),
        ("MORE", "1"),
    ]
    assert trainer.spec["nodeSelector"] == {"pool": "mine"}
    assert trainer.spec["tolerations"] == [*own["tolerations"], *SHARED["tolerations"]]
    assert trainer.spec["schedulerName"] == "mine"
    assert container["resources"]["limits"]["cpu"] == "2"
    assert generator.spec["nodeSelector"] == {"pool": "rl"}
    assert generator.spec["containers"][0]["resources"]["limits"]["cpu"] == "8"


def test_shared_limits_reach_every_container() -> None:
    """A quota on limits asks them of hooks, init containers and the exporter as well."""
    values = {
        "everyRole": {"resources": {"limits": {"cpu": 8}}},
        "redis": {"exporter": {"enabled": True}},
    }
    found = [
        (pod.role, container["name"], container["resources"]["limits"]["cpu"])
        for pod in pods(render(merged(ALL, values)))
        for container in pod.containers
    ]
    assert {limit for _, _, limit in found} == {"8"}
    assert {role for role, _, _ in found} >= {
        *ROLES,
        "check",
        "image",
        "image-pull",
        "image-watch",
        "dry-run",
        "left-trainers",
        "uninstall",
        "test",
    }


@pytest.mark.parametrize(
    ("sentence", "values"),
    [
        ("everyRole.extraEnv[0].name = HOME", {"extraEnv": [{"name": "HOME", "value": "/"}]}),
        ("everyRole.extraContainers[0]", {"extraContainers": [{"name": "a", "image": "b"}]}),
        ("'/everyRole': additional properties 'image'", {"image": {"tag": "a"}}),
    ],
)
def test_a_mistake_is_named_where_it_was_made(sentence: str, values: Object) -> None:
    with pytest.raises(helm_errors.HelmError) as refused:
        render(merged(CPU, {"everyRole": values}))
    assert sentence in str(refused.value)
