"""What generators need for episodes in pods: rights, a token, and a policy that selects the pods
that the engine makes.
"""

from __future__ import annotations

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.run import parse_run_config
from rollcast.environments.containers.pods.api import NAMESPACE_FILE
from rollcast.environments.containers.pods.manifest import pod_manifest
from tests.chart.kubernetes_schemas import NEWEST, check
from tests.chart.network import DNS, NEIGHBOUR, OUTSIDE, Network, Place
from tests.chart.rendering import (
    CPU,
    NAMESPACE,
    Object,
    merged,
    of_kind,
    one,
    pod_of,
    render,
    run_file,
)
from tests.chart.value_sets import VALUE_SETS

VALUES = VALUE_SETS["episodes-in-pods"]


def episode_objects(objects: list[Object], kind: str) -> dict[str, Object]:
    """By namespace."""
    found = of_kind(objects, kind, "-episodes")
    return {item["metadata"]["namespace"]: item for item in found}


def environments(objects: list[Object]) -> list[ToolSet]:
    """Those of the rendered run file, as a generator reads it."""
    tasks = parse_run_config(run_file(objects), source="run.yaml").tasks
    return [item for item in tasks.environments if isinstance(item, ToolSet)]


def manifest(environment: ToolSet, **settings: str) -> Object:
    container = environment.container_settings.model_copy(update=settings)
    assert container.image is not None
    return pod_manifest(container, environment.name, "rollcast-0", container.image, {"A": "b"})


def test_rights_are_those_of_pods_alone_in_each_namespace_of_an_environment() -> None:
    objects = render(VALUES)
    roles = episode_objects(objects, "Role")
    assert set(roles) == {NAMESPACE, "episodes"}
    for role in roles.values():
        rights = {
            (resource, verb)
            for rule in role["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        assert rights == {
            *(("pods", verb) for verb in ("create", "get", "list", "watch", "delete")),
            *(("pods/exec", verb) for verb in ("create", "get")),
        }
    generator = pod_of(objects, "generator")
    for namespace, binding in episode_objects(objects, "RoleBinding").items():
        assert binding["roleRef"]["name"] == roles[namespace]["metadata"]["name"]
        (subject,) = binding["subjects"]
        assert subject["name"] == generator.spec["serviceAccountName"]
        assert subject["namespace"] == NAMESPACE


def test_a_generator_knows_which_pod_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = render(VALUES)
    generator = pod_of(objects, "generator")
    (container,) = [item for item in generator.containers if item["name"] == "generator"]
    variables = {entry["name"]: entry for entry in container["env"]}
    assert variables["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert variables["POD_UID"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid"
    monkeypatch.setenv("POD_NAME", "demo-generator-0")
    monkeypatch.setenv("POD_UID", "6b1c1d0e-0000-4000-8000-000000000001")
    monkeypatch.setenv("RUN_NAME", variables["RUN_NAME"]["value"])
    own, elsewhere = (manifest(environment)["metadata"] for environment in environments(objects))
    (owner,) = own["ownerReferences"]
    assert (owner["name"], owner["uid"]) == ("demo-generator-0", own["labels"]["rollcast.io/owner"])
    assert "ownerReferences" not in elsewhere, "an owner of another namespace counts as deleted"
    assert own["labels"]["rollcast.io/run"] == "demo"
    assert own["labels"]["rollcast.io/environment"] == "box"


def test_the_token_is_where_clients_look_and_in_no_other_container() -> None:
    more = [{"name": "other", "image": "other"}]
    values = merged(VALUES, {"generator": {"extraContainers": more, "extraInitContainers": more}})
    generator = pod_of(render(values), "generator")
    assert generator.spec["automountServiceAccountToken"] is False
    mounts = {
        container["name"]: mount["mountPath"]
        for container in (*generator.containers, *generator.spec["initContainers"])
        for mount in container.get("volumeMounts", [])
        if mount["name"] == "api-token"
    }
    assert mounts == {"generator": str(NAMESPACE_FILE.parent)}
    (volume,) = [item for item in generator.spec["volumes"] if item["name"] == "api-token"]
    token, authority, namespace = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["path"] == "token"
    assert authority["configMap"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
    assert namespace["downwardAPI"]["items"][0]["path"] == NAMESPACE_FILE.name


def test_releases_that_share_a_namespace_of_episodes_share_no_object() -> None:
    identities = [
        {
            (item["kind"], item["metadata"]["namespace"], item["metadata"]["name"])
            for item in render(VALUES, namespace=namespace)
            if item["metadata"]["name"].endswith("-episodes")
        }
        for namespace in ("one", "two")
    ]
    assert [len(found) for found in identities] == [6, 6]
    assert not identities[0] & identities[1]


def test_the_policy_outlives_the_release() -> None:
    for policy in episode_objects(render(VALUES), "NetworkPolicy").values():
        assert policy["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_pod_without_a_network_reaches_nothing_and_is_reached_by_nothing(enabled: bool) -> None:
    objects = render(merged(VALUES, {"networkPolicy": {"enabled": enabled}}))
    network = Network(objects)
    for environment, namespace in zip(environments(objects), (NAMESPACE, "episodes"), strict=True):
        labels = manifest(environment)["metadata"]["labels"]
        pod = Place("pod", namespace, labels, {"http": 80})
        places = (*network.roles.values(), NEIGHBOUR, OUTSIDE, DNS)
        for place in places:
            for port in (53, 80, 443, 6379, 6443, 7431, 8080):
                assert not network.admits(pod, place, port)
                assert not network.admits(place, pod, port)
        named = manifest(environment, network="web")["metadata"]["labels"]
        assert network.admits(Place("pod", namespace, named), OUTSIDE, 443)


def test_only_generators_that_make_pods_reach_the_api_server() -> None:
    closed = {"model": {"source": "arithmetic"}, "networkPolicy": {"apiServerCIDR": "10.9.0.1/32"}}
    api_server = Place("API server", None, address="10.9.0.1")
    for values, is_reached in ((VALUES, True), (CPU, False)):
        network = Network(render(merged(values, closed)))
        assert network.admits(network.roles["generator"], api_server, 6443) is is_reached
        assert not network.admits(network.roles["generator"], OUTSIDE, 6443)


def test_nothing_of_it_is_there_without_such_an_environment() -> None:
    objects = render(CPU)
    assert not [item for item in objects if item["metadata"]["name"].endswith("-episodes")]
    assert pod_of(objects, "generator").spec["automountServiceAccountToken"] is False
    assert one(objects, "Deployment", "-generator")["spec"]["template"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"runtime": "gvisor", "network": "web", "processors": 0.25},
        {"namespace": "episodes", "memory_gib": 0.3, "disk_gib": 0.1, "seconds": 12.5},
    ],
)
def test_a_pod_is_one_for_every_kubernetes(settings: dict[str, object]) -> None:
    container = ContainerSettings.model_validate(
        {"engine": "kubernetes", "image": "debian:12", **settings}
    )
    pod = pod_manifest(container, "a name: of é", "rollcast-0", "debian:12", {"A": "b"})
    for version in ("1.30", NEWEST):
        check(pod, version)
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["requests"] == main["resources"]["limits"]
    assert main["resources"]["limits"]["cpu"] == f"{int(container.processors * 1000)}m"
    assert pod["spec"]["activeDeadlineSeconds"] == int(container.seconds)
    assert pod["spec"].get("runtimeClassName") == container.runtime
    assert main["securityContext"]["capabilities"]["drop"] == ["ALL"]
