"""Before an install the API server is asked about a pod of every role; its refusals end the
install, nothing else.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kubernetes")

from tests.autoscaler.api_server import NAMESPACE, PODS, ApiServer
from tests.chart.local_cluster import LocalCluster
from tests.chart.rendering import CPU, Object, merged, of_kind, one, pods, render

EVERY_ROLE = merged(
    CPU,
    {
        "autoscaler": {"mode": "controller"},
        "grader": {"enabled": True},
        "environments": [
            {"name": name, "image": {"repository": "team/server", "tag": "1"}}
            for name in ("a", "b")
        ],
        "priorityClasses": {"create": True},
        "redis": {"priorityClassName": "high"},
    },
)
NO_CLASS = 'pods "trainer-x" is forbidden: no PriorityClass with name hihg was found'
NO_LIMIT = 'pods "redis-x" is forbidden: failed quota: cpus: must specify limits.cpu for: redis'


def asked(tmp_path: Path, server: ApiServer) -> tuple[int, str]:
    """Exit code and log of the rendered command, as a process."""
    with LocalCluster(render(EVERY_ROLE, namespace=NAMESPACE), tmp_path / "pods") as cluster:
        pod = cluster.pod("dry-run")
        (container,) = pod.template.spec["containers"]
        (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "config"]
        folder = tmp_path / "config"
        folder.mkdir()
        (item,) = of_kind(cluster.objects, "ConfigMap", "-dry-run")
        (folder / "pods.json").write_text(item["data"]["pods.json"])
        words = [word.replace(mount["mountPath"], str(folder)) for word in container["args"]]
        given = {"KUBECONFIG": str(server.kubeconfig(tmp_path))}
        code = pod.run("dry-run", [*container["command"], *words], given).wait(60)
        return code, pod.log("dry-run").read_text()


def test_a_pod_of_every_role_is_asked_about_as_it_will_be(tmp_path: Path) -> None:
    with ApiServer() as server:
        code, log = asked(tmp_path, server)
        assert (code, log) == (0, "")
        assert server.log == [("POST", PODS)] * 8
        tried = {
            body["metadata"]["labels"]["app.kubernetes.io/component"]: body
            for body in server.dry_runs
        }
    rendered = {pod.role: pod for pod in pods(render(EVERY_ROLE, namespace=NAMESPACE))}
    for role, body in tried.items():
        spec = dict(rendered[role].spec)
        del spec["serviceAccountName"]  # which is not there yet, nor is the chart's own class
        if role in ("trainer", "generator"):
            del spec["priorityClassName"]
        mounted = {
            mount["name"]
            for container in body["spec"]["containers"]
            for mount in container["volumeMounts"]
        }
        volumes = {volume["name"]: volume for volume in body["spec"].get("volumes", [])}
        assert mounted <= set(volumes), "the API server refuses a mount without its volume"
        claimed = [{"name": "data", "emptyDir": {}}] if role == "redis" else []
        assert body["spec"] == spec | {"volumes": [*spec.get("volumes", []), *claimed]}
        assert body["metadata"]["labels"] == rendered[role].metadata["labels"]
    assert tried["redis"]["spec"]["priorityClassName"] == "high"
    assert set(tried) == {
        "trainer",
        "generator",
        "redis",
        "forecaster",
        "autoscaler",
        "grader",
        "env-a",
        "env-b",
    }


def test_what_the_api_server_refuses_is_named_with_its_role(tmp_path: Path) -> None:
    with ApiServer() as server:
        server.refused_pods = {"trainer": (403, NO_CLASS), "redis": (403, NO_LIMIT)}
        code, log = asked(tmp_path, server)
    assert code == 2
    assert log.splitlines() == [
        f"error: the API server refuses pods of {role}: {message}; change {role} or everyRole, or "
        "leave this question out: hooks.dryRun=false"
        for role, message in (("redis", NO_LIMIT), ("trainer", NO_CLASS))
    ]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            403,
            (
                'pods is forbidden: User "x" cannot create resource "pods" in API group "" in the '
                'namespace "rl"'
            ),
        ),
        (403, 'pods "a" is forbidden: exceeded quota: gpus, requested: 8, used: 8, limited: 8'),
        (400, 'admission webhook "a.example.com" does not support dry run'),
        (500, "etcdserver: request timed out"),
    ],
)
def test_what_may_pass_by_itself_keeps_no_install_from_its_work(
    status: int, message: str, tmp_path: Path
) -> None:
    with ApiServer() as server:
        server.refused_pods = {"trainer": (status, message)}
        code, log = asked(tmp_path, server)
    assert code == 0
    assert log.startswith("warning: the API server was not asked about every pod: ")
    assert log.count("\n") == 1
    assert (message if status != 500 else "the API server answered 500") in log


def test_its_account_may_create_pods_and_nothing_else_and_can_be_left_out() -> None:
    objects = render(EVERY_ROLE)
    assert one(objects, "Role", "-dry-run")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}
    ]
    hooks = [item["metadata"] for item in objects if item["metadata"]["name"].endswith("-dry-run")]
    assert {item["annotations"]["helm.sh/hook"] for item in hooks} == {"pre-install,pre-upgrade"}
    without: Object = merged(EVERY_ROLE, {"hooks": {"dryRun": False}})
    assert not [item for item in render(without) if item["metadata"]["name"].endswith("-dry-run")]
