"""A release of generators alone, for the run of another release that it pulls versions from."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.rendering import Object, helm_errors, merged, one, render, run_file

FIRST: Object = {
    "config": {
        "run": "demo",
        "model": {"path": "/models/m"},
        "weights": {"store": {"location": "s3://bucket/weights"}},
    },
    "model": {"source": "folder", "volume": {"kind": "hostPath", "hostPath": "/models"}},
    "networkPolicy": {"remoteGenerators": [{"ipBlock": {"cidr": "10.8.0.0/16"}}]},
}
SECOND: Object = merged(
    FIRST,
    {
        "generatorsOnly": {"enabled": True, "trainerHost": "trainer.first.example"},
        "redis": {"external": {"host": "redis.first.example"}},
        "auth": {"existingSecret": "first-auth"},
    },
)


def test_it_has_generators_that_reach_the_first_release() -> None:
    objects = render(SECOND)
    long_lived = {"Deployment", "StatefulSet", "Job", "JobSet", "PersistentVolumeClaim"}
    hooks = "helm.sh/hook"
    kept = [item for item in objects if hooks not in item["metadata"].get("annotations", {})]
    names = [item["metadata"]["name"] for item in kept if item["kind"] in long_lived]
    assert names == ["demo-rollcast-generator"]
    settings = run_file(objects)
    assert settings["rpc"]["host"] == "trainer.first.example"
    assert (settings["redis"]["host"], settings["redis"]["scope"]) == ("redis.first.example", "")
    pod = one(objects, "Deployment", "rollcast-generator")["spec"]["template"]["spec"]
    secrets = {
        variable["name"]: variable["valueFrom"]["secretKeyRef"]
        for variable in pod["containers"][0]["env"]
        if "secretKeyRef" in variable.get("valueFrom", {})
    }
    assert secrets["ROLLCAST_RPC_TOKEN"] == {"name": "first-auth", "key": "rpc-token"}
    assert secrets["ROLLCAST_REDIS_PASSWORD"] == {
        "name": "first-auth",
        "key": "redis-generator-password",
    }
    assert {443, 6379, 7431} <= egress_ports(one(objects, "NetworkPolicy", "rollcast-generator"))


def egress_ports(policy: Object) -> set[Any]:
    """Ports that are open to any address."""
    rules = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    return {port["port"] for rule in rules for port in rule["ports"]}


def test_the_first_release_lets_them_in_and_reaches_the_store() -> None:
    objects = render(FIRST)
    peers = FIRST["networkPolicy"]["remoteGenerators"]
    trainer = one(objects, "NetworkPolicy", "rollcast-trainer")
    assert {"from": peers, "ports": [{"port": "rpc"}]} in trainer["spec"]["ingress"]
    (redis,) = (
        rule
        for rule in one(objects, "NetworkPolicy", "rollcast-redis")["spec"]["ingress"]
        if rule["ports"] == [{"port": "redis"}]
    )
    assert peers[0] in redis["from"]
    assert 443 in egress_ports(trainer)
    assert 443 in egress_ports(one(objects, "NetworkPolicy", "rollcast-generator"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"generatorsOnly": {"trainerHost": ""}}, "generatorsOnly.trainerHost is empty"),
        ({"auth": {"existingSecret": ""}}, "auth.existingSecret is empty"),
        ({"redis": {"external": {"host": ""}}}, "redis.external.host is empty"),
        ({"autoscaler": {"mode": "keda"}}, "autoscaler.mode = keda: generatorsOnly.enabled"),
        ({"config": {"weights": {"store": {"location": ""}}}}, "config.weights.store.location is"),
    ],
)
def test_what_it_lacks_is_named(change: Object, sentence: str) -> None:
    with pytest.raises(helm_errors.HelmError, match=sentence):
        render(merged(SECOND, change))


def test_a_store_in_a_folder_that_generators_do_not_mount_is_refused() -> None:
    change = {"config": {"weights": {"transport": "store", "store": {"location": None}}}}
    with pytest.raises(helm_errors.HelmError, match="generators do not mount the run's folder"):
        render(merged(FIRST, change))
