"""Releases of whatever name, and two of them beside each other: what they have in common is
nothing.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.kubernetes_schemas import NEWEST, check
from tests.chart.rendering import (
    CHART,
    CPU,
    Object,
    helm_errors,
    merged,
    of_kind,
    one,
    pods,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS

WATCHED = merged(VALUE_SETS["monitoring"], {"priorityClasses": {"create": True}})
SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1035, as Kubernetes before 1.34 asks for."""
NAMESPACED = ("keda.sh/v1alpha1", "monitoring.coreos.com/v1")


@pytest.mark.parametrize("name", ["y", "1122", "007", "1e3", "a.b", "x" * 53])
def test_any_name_that_helm_takes_is_one_that_kubernetes_takes(name: str) -> None:
    """YAML would make truths and numbers of some: of a label, a name, a namespace."""
    objects = render(WATCHED, name=name, namespace=name.replace(".", "-"))
    for item in objects:
        assert isinstance(item["metadata"]["name"], str)
        assert all(isinstance(value, str) for value in item["metadata"]["labels"].values())
        if item["apiVersion"] not in NAMESPACED:
            check(item, NEWEST)
    for service in of_kind(objects, "Service"):
        assert SERVICE_NAME.fullmatch(service["metadata"]["name"])
    for pod in pods(objects):
        assert pod.metadata["labels"]["app.kubernetes.io/instance"] == name
    assert f"app.kubernetes.io/instance={name}," in run_file(objects)["autoscaler"]["trainer_jobs"]


def _identities(objects: list[Object]) -> set[tuple[str, str, str]]:
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in objects
    }


def _dashboards(objects: list[Object]) -> set[tuple[str, Any]]:
    """What Grafana and its sidecar know dashboards and data sources by."""
    found: set[tuple[str, Any]] = set()
    for item in of_kind(objects, "ConfigMap"):
        for file, text in item.get("data", {}).items():
            if "-dashboard-" in item["metadata"]["name"]:
                board = json.loads(text)
                found |= {("file", file), ("uid", board["uid"]), ("title", board["title"])}
            elif item["metadata"]["name"].endswith("-datasource"):
                (source,) = yaml.safe_load(text)["datasources"]
                found |= {
                    ("file", file),
                    ("uid", source["uid"]),
                    ("name", source["name"]),
                    ("url", source["url"]),
                }
    assert len(found) == 3 * 5 + 4, "five dashboards and a data source"
    return found


def _rules(objects: list[Object]) -> set[tuple[str, str]]:
    (group,) = one(objects, "PrometheusRule")["spec"]["groups"]
    return {(rule["alert"], rule["expr"]) for rule in group["rules"]}


def _series(objects: list[Object]) -> set[str]:
    """The selectors of all that rules ask for, and all that queries of dashboards begin with."""
    return {
        found
        for _, expression in _rules(objects)
        for found in re.findall(r"\w+\{[^}]*\}", expression)
    }


def test_two_releases_in_one_namespace_and_in_two_have_nothing_in_common() -> None:
    """Also where namespace and name, put together, read the same; here all have the run's name from
    the profile.
    """
    external = {
        "redis": {
            "enabled": False,
            "external": {"host": "redis.example.com"},
            "exporter": {"enabled": False},
        }
    }
    places = [("team", "a-b"), ("team-a", "b"), ("team", "c"), ("other", "a-b")]
    releases = [
        render(merged(WATCHED, external), name=name, namespace=namespace)
        for namespace, name in places
    ]
    for (place, one_release), (other_place, other) in itertools.combinations(
        zip(places, releases, strict=True), 2
    ):
        common = _identities(one_release) & _identities(other)
        assert _dashboards(one_release).isdisjoint(_dashboards(other))
        if (
            place[0] == other_place[0]
        ):  # two runs of one name in one namespace: Helm refuses to take the object over
            assert common == {("ConfigMap", "team", "rollcast-run-demo")}
        else:
            assert common == set()
            assert _rules(one_release).isdisjoint(_rules(other))
            assert _series(one_release).isdisjoint(_series(other))
    scopes = {run_file(objects)["redis"]["scope"] for objects in releases}
    assert len(scopes) == len(places)
    renamed = render(merged(WATCHED, {"config": {"run": "another"}}), name="c", namespace="team")
    assert _identities(releases[0]).isdisjoint(_identities(renamed))
    assert _series(releases[0]).isdisjoint(_series(renamed))


@pytest.mark.parametrize(
    ("owner", "run", "refused"),
    [("first", "demo", True), ("second", "demo", False), ("", "demo", False)],
)
def test_a_second_release_with_the_name_of_a_run_is_refused_in_words(
    owner: str, run: str, refused: bool, tmp_path: Path
) -> None:
    """The chart as a cluster sees it that has the first release's ConfigMap; without any, lookup
    gives an empty map.
    """
    chart = shutil.copytree(CHART, tmp_path / "rollcast")
    template = chart / "templates" / "run-name.yaml"
    asked = 'lookup "v1" "ConfigMap" .Release.Namespace (printf "rollcast-run-%s" $run)'
    assert asked in template.read_text()
    there = {"kind": "ConfigMap", "data": {"release": owner}} if owner else {}
    template.write_text(template.read_text().replace(asked, f"fromJson `{json.dumps(there)}`"))
    values = merged(WATCHED, {"config": {"run": run}})
    if not refused:
        assert render(values, name="second", path=chart)
        return
    sentence = "config.run = demo: release first has a run of this name in namespace"
    with pytest.raises(helm_errors.HelmError, match=sentence):
        render(values, name="second", path=chart)


def test_scraped_series_bear_the_namespace_and_dashboards_begin_with_their_run() -> None:
    """The operator adds it to whatever a monitor of a namespace finds; only a relabelling could
    take it away.
    """
    objects = render(WATCHED, namespace="team")
    for monitor in (item for item in objects if item["kind"] in ("PodMonitor", "ServiceMonitor")):
        endpoints = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
        relabelled = [
            change for endpoint in endpoints for change in endpoint.get("relabelings", [])
        ]
        assert all(change["action"] == "keep" for change in relabelled)
    (text,) = one(objects, "ConfigMap", "-dashboard-run")["data"].values()
    chosen = {
        variable["name"]: variable.get("current", {})
        for variable in json.loads(text)["templating"]["list"]
    }
    assert (chosen["namespace"]["value"], chosen["run"]["value"]) == ("team", "demo")
    (source,) = yaml.safe_load("".join(one(objects, "ConfigMap", "-datasource")["data"].values()))[
        "datasources"
    ]
    (taken,) = [variable["regex"] for variable in json.loads(text)["templating"]["list"]
                if variable["name"] == "forecaster"]  # fmt: skip
    assert re.search(taken.strip("/"), source["name"])
    assert not re.search(taken.strip("/"), source["name"].replace("team/", "other/")), (
        "another release's forecast"
    )
    assert "@" not in re.sub(r"@ ?end\(\)", "", text)


@pytest.mark.parametrize(
    ("given", "read"), [({}, "team"), ({"namespace": "other"}, "other"), ({"namespace": ""}, "")]
)
def test_who_reads_a_prometheus_reads_the_runs_of_its_own_namespace(
    given: Object, read: str
) -> None:
    sources = {role: {"source": given} for role in ("autoscaler", "forecaster")}
    settings = run_file(
        render(
            merged(VALUE_SETS["autoscaler-from-prometheus"], {"config": sources}), namespace="team"
        )
    )
    assert [settings[role]["source"]["namespace"] for role in sources] == [read, read]
    assert "namespace" not in run_file(render(CPU))["forecaster"]["source"]


def test_a_redis_of_ones_own_is_asked_by_the_runs_name_alone() -> None:
    assert "scope" not in run_file(render(CPU))["redis"]
