"""What the chart joins: a Redis, a registry and secrets of one's own, a parent chart, Grafana."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import yaml

from tests.chart.rendering import (
    CHART,
    CPU,
    Object,
    helm_chart,
    merged,
    notes,
    of_kind,
    one,
    pod_of,
    pods,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS

PUSH_TOKEN = "ROLLCAST_PUSH_TOKEN"


def test_external_redis_takes_its_own_password() -> None:
    def password(name: str) -> Object | None:
        environment = pod_of(render(VALUE_SETS[name]), "generator").spec["containers"][0]["env"]
        entry = next(
            (entry for entry in environment if entry["name"] == "ROLLCAST_REDIS_PASSWORD"), None
        )
        return entry and entry["valueFrom"]["secretKeyRef"]

    key = "redis-generator-password"
    assert password("cpu") == {"name": "demo-rollcast-auth", "key": key}
    assert password("own-secret") == {"name": "mine", "key": key}
    assert password("external-redis") == {"name": "mine", "key": "redis-password"}
    assert password("external-redis-without-password") is None
    assert password("external-redis-with-users") == {"name": "mine", "key": key}
    secret = one(render(VALUE_SETS["external-redis"]), "Secret")["data"]
    assert not [name for name in secret if name.startswith("redis")]
    assert run_file(render(VALUE_SETS["external-redis"]))["redis"] == {
        "host": "redis.example.com",
        "port": 6379,
        "scope": "ml/demo",
        "tls": {},
        "max_bytes": 134_217_728,
    }


def test_each_pod_has_the_redis_user_of_its_role_and_the_others_have_none() -> None:
    def users(name: str) -> dict[str, list[str]]:
        return {
            pod.role: [
                entry.get("value") or entry["valueFrom"]["secretKeyRef"]["key"]
                for container in pod.containers
                for entry in container.get("env", [])
                if entry["name"].startswith(("ROLLCAST_REDIS", "REDIS_USER", "REDIS_PASSWORD"))
            ]
            for pod in pods(
                render(merged(VALUE_SETS[name], {"autoscaler": {"mode": "controller"}}))
            )
        }

    own = users("redis-in-memory-with-exporter")
    assert own["trainer"] == ["trainer", "redis-trainer-password"]
    assert own["generator"] == own["test"] == ["generator", "redis-generator-password"]
    assert own["redis"] == ["reader", "redis-reader-password"], "the exporter"
    assert own["forecaster"] == own["autoscaler"] == []
    assert users("external-redis-with-users")["trainer"] == [
        "demo-trainer",
        "redis-trainer-password",
    ]


def test_the_registry_of_a_mirror_takes_the_place_of_all() -> None:
    images = {
        container["image"]
        for pod in pods(render(VALUE_SETS["digests-and-mirror"]))
        for container in pod.containers
    }
    assert all(image.startswith("mirror.example.com:5000/") for image in images)
    assert all("@sha256:" in image for image in images)


def test_the_cpu_images_bear_the_version_of_the_chart() -> None:
    version = helm_chart.Chart.load(CHART).metadata["appVersion"]
    assert CPU["generator"]["image"]["tag"] == CPU["trainer"]["image"]["tag"] == f"{version}-cpu"


def test_it_works_as_a_subchart(tmp_path: Path) -> None:
    """The parent's `global`, `enabled` as condition, and the schema, which must bear both."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    shutil.copytree(CHART, parent / "charts" / "rollcast")
    (parent / "Chart.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v2",
                "name": "parent",
                "version": "1.0.0",
                "dependencies": [
                    {"name": "rollcast", "version": ">=0.0.0-0", "condition": "rollcast.enabled"}
                ],
            }
        )
    )
    (parent / "values.yaml").write_text("global: {imageRegistry: mirror, storageClass: fast}\n")
    on = render({"rollcast": CPU | {"enabled": True}}, path=parent)
    assert {
        container["image"].split("/")[0] for pod in pods(on) for container in pod.containers
    } == {"mirror"}
    assert one(on, "Deployment", "-generator")
    assert render({"rollcast": {"enabled": False}}, path=parent) == []


def test_notes_say_where_to_look_and_what_is_insecure() -> None:
    text = notes(CPU)
    assert "port-forward svc/demo-rollcast-forecaster 8400" in text
    assert "WARNING" not in text
    assert text.count("delete pvc") == 1
    assert "delete pvc data-demo-rollcast-redis-0\n" in text
    kept = notes(merged(CPU, {"storage": {"keep": True}}))
    assert "delete pvc data-demo-rollcast-redis-0 demo-rollcast-runs\n" in kept
    assert "delete pvc" not in notes(VALUE_SETS["external-redis"])
    assert "passwordSecret is empty" in notes(VALUE_SETS["external-redis-without-password"])
    assert "http-token" in notes(VALUE_SETS["own-secret"])
    assert "push-token" in notes(VALUE_SETS["push-token"])
    assert "push-token" not in text
    assert '"Rollcast forecast ml/demo"' in notes(VALUE_SETS["monitoring"])
    assert "collective_timeout_seconds" in notes(VALUE_SETS["two-nodes-as-a-job"])


def test_helm_finds_the_log_of_a_pod_by_the_name_of_every_test() -> None:
    """`helm test --logs` asks for one of each hook of kind test, whatever it is; the pod must have
    one container.
    """
    objects = [
        item
        for item in render(CPU)
        if "test" in item["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    ]
    found = {
        item["metadata"]["name"]: len(item["spec"]["containers"])
        for item in of_kind(objects, "Pod")
    }
    assert {item["metadata"]["name"] for item in objects} == set(found)
    assert set(found.values()) == {1}
    ranks = {item["kind"]: int(item["metadata"]["annotations"].get("helm.sh/hook-weight", 0))
             for item in objects if item["metadata"]["name"].endswith("-test-ranks")}  # fmt: skip
    assert sorted(ranks, key=lambda kind: ranks[kind]) == ["Service", "StatefulSet", "Pod"], (
        "Helm waits for a Pod"
    )


def test_only_the_forecaster_is_given_the_token_of_those_that_push() -> None:
    def given(values: Object) -> dict[str, str]:
        """Role -> the Secret that holds its token."""
        entries = [
            (pod.role, entry)
            for pod in pods(render(values))
            for c in pod.containers
            for entry in c.get("env", [])
        ]
        found = {
            role: entry["valueFrom"]["secretKeyRef"]
            for role, entry in entries
            if entry["name"] == PUSH_TOKEN
        }
        assert all(reference["key"] == "push-token" for reference in found.values())
        return {role: reference["name"] for role, reference in found.items()}

    objects = render(VALUE_SETS["push-token"])
    assert given(VALUE_SETS["push-token"]) == {"forecaster": "demo-rollcast-auth"}
    assert "push-token" in one(objects, "Secret", "-auth")["data"]
    assert given(merged(VALUE_SETS["push-token"], {"auth": {"existingSecret": "mine"}})) == {
        "forecaster": "mine"
    }
    assert given(CPU) == {}
    assert "push-token" not in one(render(CPU), "Secret", "-auth")["data"]


def _datasource(values: Object) -> Object:
    """What Grafana would read of the release's data source."""
    (text,) = one(render(values), "ConfigMap", "-forecaster-datasource")["data"].values()
    provisioned = yaml.safe_load(text)
    assert provisioned["apiVersion"] == 1
    (source,) = provisioned["datasources"]
    return dict(source)


def test_grafana_finds_the_forecast_beyond_now() -> None:
    """By the Service's own name and port, the dashboard by the data source's name, and two releases
    do not collide.
    """
    objects = render(VALUE_SETS["monitoring"])
    item = one(objects, "ConfigMap", "-forecaster-datasource")
    assert item["metadata"]["labels"]["grafana_datasource"] == "1"
    service = one(objects, "Service", "-forecaster")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}"
    (port,) = [port["port"] for port in service["spec"]["ports"] if port["name"] == "http"]
    source = _datasource(VALUE_SETS["monitoring"])
    assert source["url"] == f"http://{host}:{port}/prometheus"
    assert source["type"] == "prometheus"
    assert len(source["uid"]) <= 40
    assert "httpHeaderName1" not in source["jsonData"]
    run = json.loads((CHART / "files" / "dashboards" / "run.json").read_text())
    wanted = {
        variable["name"]: re.compile(
            variable["regex"].removeprefix("/").removesuffix("/i"), re.IGNORECASE
        )
        for variable in run["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert wanted["forecaster"].search(source["name"])
    assert not wanted["datasource"].search(source["name"])
    assert wanted["datasource"].search("Prometheus")
    other = yaml.safe_load(
        next(
            iter(
                one(render(VALUE_SETS["monitoring"], name="b"), "ConfigMap", "-datasource")[
                    "data"
                ].values()
            )
        )
    )["datasources"][0]
    assert {other[key] for key in ("name", "uid", "url")}.isdisjoint(
        {source[key] for key in ("name", "uid", "url")}
    )


def test_grafana_presents_the_token_and_speaks_tls_where_the_pages_ask_for_it() -> None:
    dashboards = {"monitoring": {"dashboards": {"enabled": True}}}
    asked = _datasource(merged(VALUE_SETS["http-token"], dashboards))
    assert asked["jsonData"]["httpHeaderName1"] == "Authorization"
    assert asked["secureJsonData"] == {"httpHeaderValue1": "Bearer $ROLLCAST_HTTP_TOKEN"}
    assert "ROLLCAST_HTTP_TOKEN" in notes(merged(VALUE_SETS["http-token"], dashboards))
    encrypted = _datasource(merged(VALUE_SETS["tls-everywhere"], dashboards))
    assert encrypted["url"].startswith("https://")
    assert encrypted["jsonData"]["tlsSkipVerify"] is True


def test_no_data_source_is_made_that_leads_nowhere_or_is_not_wanted() -> None:
    for change in (
        {"monitoring": {"dashboards": {"enabled": True, "datasourceLabels": None}}},
        {"monitoring": {"dashboards": {"enabled": True}}, "forecaster": {"enabled": False}},
        {},
    ):
        assert of_kind(render(merged(CPU, change)), "ConfigMap", "-datasource") == []


def test_a_secret_of_ones_own_is_not_made_again() -> None:
    assert of_kind(render(VALUE_SETS["own-secret"]), "Secret") == []
    data = one(render(CPU), "Secret")["data"]
    assert len({*data.values()}) == len(data) == 4
