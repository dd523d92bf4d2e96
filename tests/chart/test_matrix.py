"""Every value set renders, lints, and is what Kubernetes 1.28 to 1.37 and the run file's own schema accept.

The oldest and the newest are asked every time, those between them by `make proofs`: what the API took away or added is
seen at the ends.
"""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.run import parse_run_config
from tests.chart import custom_resources
from tests.chart.rendering import CHART, copy_for, helm_chart, notes, one, render, run_file
from tests.chart.value_sets import FOR_NEW_CLUSTERS, VALUE_SETS

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
VERSIONS = [f"1.{minor}" for minor in range(28, 38)]
ASKED = VERSIONS if "ROLLCAST_EVERY_KUBERNETES" in os.environ else [VERSIONS[0], VERSIONS[-1]]
CUSTOM = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1", "jobset.x-k8s.io/v1alpha2")


@pytest.mark.parametrize("name", VALUE_SETS)
def test_it_lints(name: str) -> None:
    report = helm_chart.lint(CHART, VALUE_SETS[name], strict=True, namespace="ml")
    assert [message for message in report["messages"] if message["severity"] >= 2] == []
    assert report["errors"] == []


@pytest.mark.parametrize("name", VALUE_SETS)
def test_the_run_file_is_one(name: str) -> None:
    data = run_file(render(VALUE_SETS[name]))
    config = parse_run_config(data, source=name)
    assert config.folder.as_posix() == "/var/lib/rollcast/runs"
    assert data["run"] == VALUE_SETS[name].get("config", {}).get("run", "rollcast")


def test_small_and_large_numbers_survive() -> None:
    """5e-07 has no dot, which YAML 1.1 takes for text; large whole numbers must not come out as 6.7e+07."""
    config = parse_run_config(run_file(render(VALUE_SETS["small-numbers"])), source="values")
    assert config.recipe.optimizer.learning_rate == 5e-7
    assert config.weights.bucket_bytes == 4_194_304
    assert config.redis.max_bytes == 134_217_728


SUMS = re.compile(r'(?<=trainer-)[0-9a-f]{8}\b|(?<="checksum/config": ")[0-9a-f]{64}')


@functools.cache
def _every_object(path: Path = CHART) -> list[dict[str, Any]]:
    """Each different object of the matrix once; contents that only add up to other hashes and texts do not count."""
    found = {}
    for name, values in VALUE_SETS.items():
        if path != CHART and name in FOR_NEW_CLUSTERS:
            continue
        for item in render(values, path=path):
            seen = {**item, "data": dict.fromkeys(item["data"], "")} if "data" in item else item
            found[SUMS.sub("0", json.dumps(seen, sort_keys=True))] = item
    return list(found.values())


@pytest.fixture(scope="module")
def old_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it is rendered for the last version before an HPA could be given a tolerance."""
    return copy_for("1.32", tmp_path_factory.mktemp("charts"))


@pytest.fixture
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker reads the megabytes of a version's definitions again for each object."""
    utils = sys.modules[kubernetes_validate.validate.__module__]
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))


@pytest.mark.usefixtures("_read_once")
@pytest.mark.parametrize("version", ASKED)
def test_kubernetes_accepts_every_object(version: str, old_cluster: Path) -> None:
    checked = 0
    for item in _every_object(old_cluster if version in VERSIONS[:5] else CHART):
        if item["apiVersion"] in CUSTOM:
            continue
        kubernetes_validate.validate(item, version, strict=True)
        checked += 1
    assert checked > 100


@pytest.mark.parametrize(
    ("name", "tolerance"), [("hpa", None), ("hpa-without-tolerance", "0"), ("keda-with-little-tolerance", "0.05")]
)
def test_an_hpa_is_given_the_tolerance_that_the_autoscaler_counts_with_where_it_can_be(
    name: str, tolerance: str | None, old_cluster: Path
) -> None:
    """Kubernetes 1.33 is the first that knows the field; before it, the notes say that the setting lies."""
    for path, expected in ((CHART, tolerance), (old_cluster, None)):
        kinds = ("HorizontalPodAutoscaler", "ScaledObject")
        (item,) = [item for item in render(VALUE_SETS[name], path=path) if item["kind"] in kinds]
        behavior = item["spec"].get("behavior") or item["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        assert [behavior[way].get("tolerance") for way in ("scaleUp", "scaleDown")] == [expected, expected]
        warns = tolerance is not None and expected is None
        assert (f"config.autoscaler.hpa_tolerance = {tolerance}: " in notes(VALUE_SETS[name], path)) is warns


def test_kubernetes_would_refuse_an_unknown_field() -> None:
    deployment = json.loads(json.dumps(one(render({}), "Deployment", "-generator")))
    deployment["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


@pytest.mark.skipif(custom_resources.folder() is None, reason="ROLLCAST_SHARED_DATA names no folder with crds/")
def test_operators_accept_every_custom_resource() -> None:
    kinds = set()
    for item in _every_object():
        if item["apiVersion"] in CUSTOM:
            assert custom_resources.errors(item) == [], item["kind"]
            kinds.add(item["kind"])
    assert kinds >= {"ScaledObject", "PodMonitor", "ServiceMonitor", "JobSet", "PrometheusRule"}


@pytest.mark.skipif(custom_resources.folder() is None, reason="ROLLCAST_SHARED_DATA names no folder with crds/")
def test_operators_would_refuse_an_unknown_field_and_a_wrong_type() -> None:
    scaled = json.loads(json.dumps(one(render(VALUE_SETS["keda"]), "ScaledObject")))
    scaled["spec"]["minReplicas"] = 1
    scaled["spec"]["maxReplicaCount"] = "many"
    found = "\n".join(custom_resources.errors(scaled))
    assert "minReplicas" in found
    assert "many" in found
