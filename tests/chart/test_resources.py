"""Requests and limits of every container: as they are given, whether as texts or as numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import CPU, Object, merged, pods, profile, render

ROLES = ("generator", "trainer", "forecaster", "autoscaler", "grader", "redis")
EVERYTHING = merged(
    CPU,
    {
        "autoscaler": {"mode": "controller"},
        "grader": {"enabled": True, "runtimeClassName": ""},
        "redis": {"exporter": {"enabled": True}},
    },
)
QUOTA = {"limits": {"cpu": 3, "memory": "12Gi", "ephemeral-storage": 0.5}, "requests": {"cpu": 2}}
"""What a namespace with a quota asks of every container."""


def given(resources: Object, *paths: str) -> Object:
    values: Object = {}
    for path in paths:
        node: Any = values
        for name in path.split("."):
            node = node.setdefault(name, {})
        node["resources"] = resources
    return values


@pytest.mark.parametrize(("number", "text"), [(2, "2"), (0.5, "0.5"), (2.0, "2")])
def test_a_number_is_a_quantity(number: float, text: str) -> None:
    """`--set trainer.resources.requests.cpu=2` gives a number."""
    objects = render(merged(EVERYTHING, given({"requests": {"cpu": number}}, *ROLES)))
    asked = {
        container["name"]: container["resources"]["requests"]["cpu"]
        for pod in pods(objects)
        for container in pod.containers
        if container["name"] == pod.role
    }
    assert {role: asked[role] for role in ROLES} == dict.fromkeys(ROLES, text)


def test_a_large_number_is_written_out() -> None:
    objects = render(merged(EVERYTHING, given({"limits": {"memory": 34359738368}}, "trainer")))
    (limit,) = [
        container["resources"]["limits"]["memory"]
        for pod in pods(objects)
        if pod.role == "trainer"
        for container in pod.containers
        if container["name"] == "trainer"
    ]
    assert limit == "34359738368"


@pytest.mark.parametrize("name", ["cpu", "8xh100"])
def test_a_namespace_with_a_quota_on_limits_takes_every_pod(name: str) -> None:
    """The pods of the check, of other hooks and of helm test as well; the API server refuses a
    container without.
    """
    values = merged(
        merged(EVERYTHING, profile(name)), given(QUOTA, *ROLES, "redis.exporter", "hooks")
    )
    within = {"sharedMemory": "1Gi", "resources": {"requests": {"memory": "12Gi"}}}
    values = merged(values, {"generator": within, "trainer": within})
    for pod in pods(render(values)):
        for container in pod.containers:
            limits = container["resources"]["limits"]
            assert {
                "cpu": "3",
                "memory": "12Gi",
                "ephemeral-storage": "0.5",
            }.items() <= limits.items(), pod.name
            assert container["resources"]["requests"]["cpu"] == "2", pod.name
