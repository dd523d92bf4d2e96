"""Every value set renders, lints, and is what Kubernetes 1.28 to 1.37 accept; test_run_files.py has
their run files.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.chart import custom_resources
from tests.chart.kubernetes_schemas import ValidationError, check
from tests.chart.rendering import CHART, PROFILES, copy_for, helm_chart, notes, one, render
from tests.chart.value_sets import FOR_NEW_CLUSTERS, VALUE_SETS

VERSIONS = [f"1.{minor}" for minor in range(28, 38)]
SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
CUSTOM = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1", "jobset.x-k8s.io/v1alpha2")


LINTED = (
    "defaults",
    *PROFILES,
    "additions-in-every-role",
    "annotations-for-prometheus",
    "environments",
    "further-objects",
    "graders-in-gvisor",
    "ingress",
    "jobset",
    "monitoring",
    "priorities-and-no-budgets",
    "shared-model-volume",
)
"""Value sets with every template among them: the linter renders again."""


@pytest.mark.parametrize("name", LINTED)
def test_it_lints(name: str) -> None:
    report = helm_chart.lint(CHART, VALUE_SETS[name], strict=True, namespace="ml")
    assert [message for message in report["messages"] if message["severity"] >= 2] == []
    assert report["errors"] == []


def test_what_is_linted_has_every_kind_of_object() -> None:
    def kinds(names: Iterable[str]) -> set[tuple[str, str]]:
        return {
            (item["apiVersion"], item["kind"])
            for name in names
            for item in render(VALUE_SETS[name])
        }

    assert kinds(LINTED) == kinds(VALUE_SETS)


SUMS = re.compile(r'(?<=trainer-)[0-9a-f]{8}\b|(?<="checksum/config": ")[0-9a-f]{64}')


@functools.cache
def _every_object(path: Path = CHART) -> list[dict[str, Any]]:
    """Each different object of the matrix once; contents that only add up to other hashes and texts
    do not count.

    Another version of Kubernetes changes what scales, and nothing else.
    """
    found = {}
    for name, values in VALUE_SETS.items():
        if path != CHART and name in FOR_NEW_CLUSTERS:
            continue
        objects = render(values)
        if path != CHART and any(item["kind"] in SCALERS for item in objects):
            objects = render(values, path=path)
        for item in objects:
            seen = {**item, "data": dict.fromkeys(item["data"], "")} if "data" in item else item
            found[SUMS.sub("0", json.dumps(seen, sort_keys=True))] = item
    return list(found.values())


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is rendered for the last version before an HPA could be given a tolerance."""
    return copy_for("1.32", tmp_path_factory.mktemp("charts"))


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_accepts_every_object(version: str, old_cluster: Path) -> None:
    checked = 0
    for item in _every_object(old_cluster if version in VERSIONS[:5] else CHART):
        if item["apiVersion"] in CUSTOM:
            continue
        check(item, version)
        checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("hpa", None), ("hpa-without-tolerance", "0"), ("keda-with-little-tolerance", "0.05")],
)
def test_an_hpa_is_given_the_tolerance_that_the_autoscaler_counts_with_where_it_can_be(
    name: str, tolerance: str | None, old_cluster: Path
) -> None:
    """Kubernetes 1.33 is the first that knows the field; before it, the notes say that the setting
    lies.
    """
    for path, expected in ((CHART, tolerance), (old_cluster, None)):
        (item,) = [item for item in render(VALUE_SETS[name], path=path) if item["kind"] in SCALERS]
        behavior = (
            item["spec"].get("behavior")
            or item["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        )
        assert [behavior[way].get("tolerance") for way in ("scaleUp", "scaleDown")] == [
            expected,
            expected,
        ]
        warns = tolerance is not None and expected is None
        assert (
            f"config.autoscaler.hpa_tolerance = {tolerance}: " in notes(VALUE_SETS[name], path)
        ) is warns


def test_kubernetes_would_refuse_an_unknown_field() -> None:
    deployment = json.loads(json.dumps(one(render({}), "Deployment", "-generator")))
    deployment["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(ValidationError, match="comand"):
        check(deployment, VERSIONS[0])


@pytest.mark.skipif(
    custom_resources.folder() is None, reason="ROLLCAST_SHARED_DATA names no folder with crds/"
)
def test_operators_accept_every_custom_resource() -> None:
    kinds = set()
    for item in _every_object():
        if item["apiVersion"] in CUSTOM:
            assert custom_resources.errors(item) == [], item["kind"]
            kinds.add(item["kind"])
    assert kinds >= {"ScaledObject", "PodMonitor", "ServiceMonitor", "JobSet", "PrometheusRule"}


@pytest.mark.skipif(
    custom_resources.folder() is None, reason="ROLLCAST_SHARED_DATA names no folder with crds/"
)
def test_operators_would_refuse_an_unknown_field_and_a_wrong_type() -> None:
    scaled = json.loads(json.dumps(one(render(VALUE_SETS["keda"]), "ScaledObject")))
    scaled["spec"]["minReplicas"] = 1
    scaled["spec"]["maxReplicaCount"] = "many"
    found = "\n".join(custom_resources.errors(scaled))
    assert "minReplicas" in found
    assert "many" in found
