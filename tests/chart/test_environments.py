"""Servers of environments in the chart: who reaches them, what they hold, and one started as it is
rendered.
"""

from __future__ import annotations

import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.run import load_run_config, parse_run_config
from rollcast.environments.tools.mcp_servers import McpServers
from testkit.system.harness import wait_for
from tests.chart.local_cluster import LocalCluster
from tests.chart.network import DNS, NEIGHBOUR, OUTSIDE, PROMETHEUS, Network
from tests.chart.rendering import (
    CHART,
    CPU,
    ROOT,
    merged,
    notes,
    of_kind,
    one,
    pod_of,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS

VALUES = VALUE_SETS["environments"]
ECHO = {"name": "echo", "image": {"repository": "team/echo-env", "tag": "1.2"}}


def test_each_has_a_deployment_and_a_service_of_its_own() -> None:
    objects = render(VALUES)
    for name, kinds in (
        ("echo", {"Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget"}),
        ("files", {"Deployment", "Service", "NetworkPolicy", "HorizontalPodAutoscaler"}),
    ):
        assert {
            item["kind"]
            for item in objects
            if item["metadata"]["name"] == f"demo-rollcast-env-{name}"
        } == kinds
    echo, files = (one(objects, "Deployment", f"-env-{name}")["spec"] for name in ("echo", "files"))
    assert echo["replicas"] == 1
    assert "replicas" not in files, "the HPA counts them"
    scaled = one(objects, "HorizontalPodAutoscaler", "-env-files")["spec"]
    assert (scaled["scaleTargetRef"]["name"], scaled["minReplicas"], scaled["maxReplicas"]) == (
        "demo-rollcast-env-files",
        2,
        8,
    )
    assert scaled["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    services = {name: one(objects, "Service", f"-env-{name}")["spec"] for name in ("echo", "files")}
    assert "sessionAffinity" not in services["echo"]
    assert services["files"]["sessionAffinity"] == "ClientIP"


def test_the_addresses_in_the_notes_are_those_of_services_and_the_run_file_may_name_them() -> None:
    objects = render(VALUES)
    for environment in ("echo", "files"):
        service = one(objects, "Service", f"-env-{environment}")
        (port,) = service["spec"]["ports"]
        address = f"http://{service['metadata']['name']}:{port['port']}"
        assert address in notes(VALUES)
        assert address in str(run_file(objects)["tasks"]["environments"])
    assert "-env-" not in notes(CPU)


@pytest.mark.parametrize("name", ["echo", "files"])
def test_their_pods_hold_nothing_of_the_run(name: str) -> None:
    """Neither a credential nor a volume, whatever all roles share; where pods are put is shared."""
    shared: dict[str, Any] = {
        "extraEnv": [{"name": "SECRET", "value": "x"}],
        "envFrom": [{"secretRef": {"name": "all"}}],
        "extraVolumes": [{"name": "all", "secret": {"secretName": "all"}}],
        "extraVolumeMounts": [{"name": "all", "mountPath": "/all"}],
        "extraContainers": [{"name": "side", "image": "side:1", "restartPolicy": "Always"}],
        "tolerations": [{"key": "rl", "operator": "Exists"}],
        "schedulerName": "shared",
        "resources": {"limits": {"cpu": 3}},
    }
    pod = pod_of(render(merged(VALUES, {"everyRole": shared})), f"env-{name}")
    (container,) = pod.containers
    assert not any("valueFrom" in entry for entry in container["env"])
    assert "SECRET" not in str(pod.spec)
    assert "all" not in {volume["name"] for volume in pod.spec["volumes"]}
    assert {"secretRef": {"name": "all"}} not in container.get("envFrom", [])
    assert pod.spec["automountServiceAccountToken"] is False
    assert shared["tolerations"][0] in pod.spec["tolerations"]
    assert pod.spec["schedulerName"] == ("volcano" if name == "files" else "shared")
    assert container["resources"]["limits"]["cpu"] == "3"


def test_generators_alone_reach_them_and_they_reach_what_is_named() -> None:
    network = Network(render(VALUES))
    roles = network.roles
    echo, files = roles["env-echo"], roles["env-files"]
    for environment in (echo, files):
        (port,) = environment.ports.values()
        callers = {
            place.name
            for place in (*roles.values(), NEIGHBOUR, PROMETHEUS)
            if network.admits(place, environment, port)
        }
        assert callers == {"generator"}
        assert not network.admits(roles["generator"], environment, port + 1)
        assert not any(network.admits(environment, place, 8080) for place in roles.values())
        assert not network.admits(environment, OUTSIDE, 443)
    inside = next(
        rule
        for rule in one(render(VALUES), "NetworkPolicy", "-env-files")["spec"]["egress"]
        if "10.7" in str(rule)
    )
    assert inside == {"to": [{"ipBlock": {"cidr": "10.7.0.0/16"}}], "ports": [{"port": 443}]}
    assert (network.admits(files, DNS, 53, "UDP"), network.admits(echo, DNS, 53, "UDP")) == (
        True,
        False,
    )
    assert not of_kind(
        render(merged(VALUES, {"networkPolicy": {"enabled": False}})), "NetworkPolicy"
    )


def test_generators_reach_servers_elsewhere_by_their_ports_alone() -> None:
    def egress(values: Any) -> list[Any]:
        rules: list[Any] = one(render(values), "NetworkPolicy", "-generator")["spec"]["egress"]
        return rules

    here = merged(VALUES, {"config": {"tasks": {"environments": []}}})
    assert [rule for rule in egress(VALUES) if rule not in egress(here)] == [
        {"ports": [{"port": 8443}]}
    ]


def test_a_change_of_the_run_restarts_no_server() -> None:
    """Their pods read no run file: the sum of it is not among their annotations."""
    changed = merged(
        VALUES,
        {
            "config": {"recipe": {"optimizer": {"learning_rate": 0.001}}},
            "generator": {"replicas": 7},
        },
    )
    for name in ("echo", "files"):
        before, after = (
            one(render(values), "Deployment", f"-env-{name}") for values in (VALUES, changed)
        )
        assert before == after


def test_a_release_without_one_is_as_before() -> None:
    assert not [item for item in render(CPU) if "-env-" in item["metadata"]["name"]]
    assert run_file(render(CPU))["tasks"] == CPU["config"]["tasks"]


def test_the_example_of_the_readme_renders_and_its_run_file_is_one() -> None:
    page = (CHART / "README.md").read_text().partition("## Servers of environments")[2]
    example = yaml.safe_load(
        textwrap.dedent(page[page.index("    environments:") : page.index("The notes after")])
    )
    config = parse_run_config(run_file(render(merged(CPU, example))), source="README.md")
    assert [environment.name for environment in config.tasks.environments] == ["echo", "files"]


def test_long_names_fit() -> None:
    values = merged(
        CPU, {"fullnameOverride": "x" * 60, "environments": [ECHO | {"name": "a" * 18}]}
    )
    (name,) = {
        item["metadata"]["name"] for item in render(values) if "-env-" in item["metadata"]["name"]
    }
    assert len(name) <= 63


async def test_the_rendered_server_serves_the_rendered_generator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An MCP server with a token of a Secret, named by its Service in the run file that the
    generator mounts.
    """
    token = {"secretKeyRef": {"name": "demo-rollcast-auth", "key": "rpc-token"}}
    server = {
        "name": "testkit",
        "image": {"repository": "team/testkit", "tag": "1"},
        "command": ["python", "-m", "testkit.mcp_server"],
        "args": ["--http", "8123", "--host", "0.0.0.0"],
        "port": 8123,
        "extraEnv": [
            {"name": "PYTHONPATH", "value": str(ROOT)},
            {"name": "TESTKIT_MCP_TOKEN", "valueFrom": token},
        ],
    }
    mcp = {
        "name": "t",
        "url": "http://demo-rollcast-env-testkit:8123/mcp",
        "token_variable": "MCP_TOKEN",
    }
    values = {
        "environments": [server],
        "generator": {"extraEnv": [{"name": "MCP_TOKEN", "valueFrom": token}]},
        "config": {"tasks": {"environments": [{"kind": "tools", "name": "t", "mcp": [mcp]}]}},
    }
    with (
        tempfile.TemporaryDirectory(prefix="pods-") as folder,
        LocalCluster(render(merged(CPU, values)), Path(folder)) as cluster,
    ):
        environment, generator = cluster.pod("env-testkit"), cluster.pod("generator")
        environment.start("environment")
        wait_for(
            lambda: "running on" in environment.log("environment").read_text(),
            120,
            "the server listens",
        )
        given = generator._environment(generator.container("generator"))
        monkeypatch.setenv("MCP_TOKEN", given["MCP_TOKEN"])
        (tools,) = load_run_config(generator._volume("config") / "run.yaml").tasks.environments
        assert isinstance(tools, ToolSet)
        servers = McpServers(tools.mcp, 60.0, 60.0)
        try:
            assert "t_add" in str(await servers.schemas())
            assert (await servers.call("t_add", {"a": 2, "b": 40})).text == "42"
        finally:
            await servers.close()
