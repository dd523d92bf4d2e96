"""The chart's graders: what they hold, who reaches them, and one started as it is rendered."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from rollcast.config.run import load_run_config
from rollcast.config.tasks import Grading
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.telemetry.exporter import Exporter
from testkit.system.harness import wait_for
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import (
    ROOT,
    defaults,
    merged,
    of_kind,
    one,
    pod_of,
    pods,
    profile,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS


@pytest.mark.parametrize("name", [name for name in VALUE_SETS if name.startswith("graders-")])
def test_graders_hold_no_credential_but_their_own_and_only_generators_share_it(name: str) -> None:
    def keys(pod: Any) -> set[str]:
        entries = [entry for container in pod.containers for entry in container.get("env", [])]
        return {
            entry["valueFrom"]["secretKeyRef"]["key"]
            for entry in entries
            if "secretKeyRef" in str(entry)
        }

    objects = render(VALUE_SETS[name])
    grader = pod_of(objects, "grader")
    assert keys(grader) == {"grader-token"}
    assert not any(
        "secret" in volume or "persistentVolumeClaim" in volume for volume in grader.spec["volumes"]
    )
    assert {pod.role for pod in pods(objects) if "grader-token" in keys(pod)} == {
        "grader",
        "generator",
    }
    assert "grader-token" in one(objects, "Secret", "-auth")["data"]
    settings = run_file(objects)
    assert settings["tasks"]["grading"]["sandbox"] == "remote"
    assert settings["grader"]["host"] == one(objects, "Service", "-grader")["metadata"]["name"]
    runtime = grader.spec.get("runtimeClassName", "")
    assert (runtime, settings["grader"]["sandbox"]) in {
        ("gvisor", "gvisor"),
        ("", "strict"),
        ("kata", "strict"),
    }
    grading = settings["tasks"]["grading"].get("deadline_seconds", Grading().longest_seconds)
    assert grader.spec["terminationGracePeriodSeconds"] > grading + 15
    monitors = of_kind(objects, "PodMonitor", "-grader")
    assert "authorization" not in json.dumps(monitors), (
        "Prometheus's token of the other pages is not for graders"
    )
    assert len(monitors) == bool(VALUE_SETS[name].get("monitoring"))


def test_a_grader_elsewhere_is_reached_with_its_own_token() -> None:
    objects = render(VALUE_SETS["a-grader-elsewhere"])
    assert not any(pod.role == "grader" for pod in pods(objects))
    assert run_file(objects)["grader"] == {"host": "grader.example.com", "port": 7433}
    environment = pod_of(objects, "generator").spec["containers"][0]["env"]
    (token,) = [entry for entry in environment if entry["name"] == "ROLLCAST_GRADER_TOKEN"]
    assert token["valueFrom"]["secretKeyRef"] == {"name": "grader", "key": "grader-token"}
    egress = one(objects, "NetworkPolicy", "-generator")["spec"]["egress"]
    assert {"ports": [{"port": 7433}]} in egress


def test_generators_reach_the_services_that_grade_and_the_trainer_its_object_storage() -> None:
    """Their ports as urllib reads them, and no other; the token comes from where its owner says."""
    urls = [
        "http://reward.rl.svc:8000/grade",
        "https://llm.example.com/v1",
        "http://[fd00::1]/a:90/b",
        "http://a:8000",
    ]
    verifiers = [
        {"kind": "http", "name": f"v{i}", "url": url, "token_variable": "JUDGE"}
        for i, url in enumerate(urls)
    ]
    token = {"name": "JUDGE", "valueFrom": {"secretKeyRef": {"name": "judge", "key": "token"}}}
    change = {
        "config": {
            "tasks": {"verifiers": verifiers},
            "trainer": {"checkpoints": "s3://bucket/path"},
        },
        "generator": {"extraEnv": [token]},
    }
    before, after = render(profile("cpu")), render(merged(profile("cpu"), change))

    def opened(role: str) -> list[int]:
        there = [
            one(objects, "NetworkPolicy", f"-{role}")["spec"]["egress"]
            for objects in (before, after)
        ]
        return sorted(rule["ports"][0]["port"] for rule in there[1] if rule not in there[0])

    found = (urlsplit(url) for url in urls)
    assert opened("generator") == sorted(
        {url.port or {"http": 80, "https": 443}[url.scheme] for url in found}
    )
    assert opened("trainer") == [443]
    assert token in pod_of(after, "generator").spec["containers"][0]["env"]


def test_the_trainer_reaches_its_teacher() -> None:
    teacher = {
        "kind": "endpoint",
        "url": "http://teacher.rl.svc:8000/v1",
        "model": "m",
        "devices": 4,
    }
    change = {"config": {"recipe": {"distillation": {"teacher": teacher}}}}
    for role, is_open in (("trainer", True), ("generator", False)):
        rules = one(render(merged(profile("cpu"), change)), "NetworkPolicy", f"-{role}")["spec"][
            "egress"
        ]
        assert ({"ports": [{"port": 8000}]} in rules) is is_open


def test_the_token_of_a_teacher_comes_from_the_trainers_variables() -> None:
    teacher = {
        "kind": "endpoint",
        "url": "http://a/v1",
        "model": "m",
        "devices": 4,
        "token_variable": "TEACHER",
    }
    change = {"config": {"recipe": {"distillation": {"teacher": teacher}}}}
    from_secret = {"trainer": {"envFrom": [{"secretRef": {"name": "teacher"}}]}}
    token = {"name": "TEACHER", "valueFrom": {"secretKeyRef": {"name": "teacher", "key": "token"}}}
    for role in (
        from_secret,
        {"trainer": {"extraEnv": [token]}},
        {"everyRole": {"extraEnv": [token]}},
    ):
        assert render(merged(profile("cpu"), merged(change, role)))


@pytest.mark.parametrize(
    ("path", "is_open"), [("org/teacher", True), ("/data/teacher", False), ("./teacher", False)]
)
def test_the_trainer_reaches_the_hub_for_a_teacher_that_is_named_there(
    path: str, is_open: bool
) -> None:
    here = {"model": {"source": "folder"}, "config": {"model": {"path": "/data/mine"}}}
    change = {"config": {"recipe": {"distillation": {"teacher": {"kind": "folder", "path": path}}}}}
    values = merged(profile("cpu"), merged(here, change))
    for role in ("trainer", "generator"):
        rules = one(render(values), "NetworkPolicy", f"-{role}")["spec"]["egress"]
        assert ({"ports": [{"port": 443}]} in rules) is (is_open and role == "trainer")


def test_the_prerequisites_offer_the_runtime_class_that_the_chart_asks_for() -> None:
    offered = yaml.safe_load((ROOT / "k8s" / "prerequisites" / "gvisor.yaml").read_text())
    wanted = defaults()["grader"]["runtimeClassName"]
    assert (offered["kind"], offered["metadata"]["name"], offered["handler"]) == (
        "RuntimeClass",
        wanted,
        "runsc",
    )


@pytest.fixture
def short_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        yield Path(folder)


@pytest.mark.protections
def test_the_rendered_grader_serves_the_rendered_generator(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with its own command, environment and mounted run file; on this machine's kernel instead
    of gVisor's.
    """
    objects = render(merged(profile("cpu"), {"grader": {"enabled": True, "runtimeClassName": ""}}))
    with LocalCluster(objects, short_path) as cluster:
        grader, generator = cluster.pod("grader"), cluster.pod("generator")
        grader.start("grader")
        probe = f"http://{grader.address}:8404{grader.container('grader')['readinessProbe']['httpGet']['path']}"
        wait_for(lambda: _answers(probe), 120, f"readiness: {grader.log('grader').read_text()}")
        for name, value in generator._environment(generator.container("generator")).items():
            if name.startswith("ROLLCAST_"):
                monkeypatch.setenv(name, value)
        config = load_run_config(generator._volume("config") / "run.yaml")
        assert config.grader.token is not None
        client = RemoteSandbox(config.grader_rpc, 30.0, config.tasks.grading, Exporter("demo"))
        client.check(["code"])
        reference = json.dumps({"kind": "tests", "tests": "assert f(1) == 2"})
        assert (
            client.grade("code", "```python\ndef f(x): return x + 1\n```", reference).status == "ok"
        )
        client.close()
        grader.processes["grader"].terminate()
        assert grader.processes["grader"].wait(30) == 0


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
