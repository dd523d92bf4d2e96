"""Before an install: a control image that no node can pull ends Helm soon,
with the image's name.
"""

from __future__ import annotations

import http.server
import json
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testkit.connections.certificates import make_certificates
from tests.chart.rendering import (
    CPU,
    NAMESPACE,
    Object,
    chart_of,
    merged,
    notes,
    of_kind,
    one,
    pod_of,
    render,
)

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
RUNNING = {"running": {"startedAt": "2026-11-26T08:00:00Z"}}
PULLING = {"waiting": {"reason": "ContainerCreating"}}


def failed(cause: str, reason: str = "ImagePullBackOff") -> Object:
    return {
        "waiting": {
            "message": f'Back-off pulling image "a": ErrImagePull: {cause}',
            "reason": reason,
        }
    }


FAILED = failed(
    'rpc error: code = NotFound desc = failed to resolve reference "docker.io/rollcast/control": '
    "not found"
)
BUSY = failed(
    'failed to do request: Head "https://registry.example.com/v2": net/http: TLS handshake timeout'
)


class Pods:
    """A stand-in for the API server's list of pods, over TLS: `states` of the container, one for
    each look.
    """

    def __init__(self, *states: Object | None) -> None:
        self.states = list(states)
        self.asked: list[tuple[str, str | None]] = []

    def answer(self) -> bytes | None:
        """As the API server prints it for curl and wget; None = it refuses.

        The last state stays.
        """
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state is None:
            return None
        status = {"phase": "Pending", "containerStatuses": [{"name": "image", "state": state}]}
        return json.dumps(
            {"kind": "PodList", "items": [{"kind": "Pod", "status": status}]}, indent=2
        ).encode()


@pytest.fixture(scope="module")
def image() -> str:
    return str(pod_of(render(CPU), "image").containers[0]["image"])


@contextmanager
def served(pods: Pods, folder: Path) -> Iterator[dict[str, str]]:
    """What the cluster gives a pod: the server's address, a token, its authority."""
    certificates = make_certificates(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pods.asked.append((self.path, self.headers.get("Authorization")))
            body = pods.answer()
            self.send_response(403 if body is None else 200)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert certificates.certificate is not None
    assert certificates.certificate_authority is not None
    context.load_cert_chain(certificates.certificate, certificates.private_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    (folder / "token").write_text("secret")
    shutil.copy(certificates.certificate_authority, folder / "ca.crt")
    try:
        port = str(server.server_address[1])
        yield {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    finally:
        server.shutdown()
        server.server_close()


def watched(pods: Pods, folder: Path, client: str) -> subprocess.CompletedProcess[str]:
    """The rendered command with this client alone, as in Redis's image, which has no curl."""
    if shutil.which(client) is None:
        pytest.skip(f"{client} is not installed")
    programs = folder / "bin"
    programs.mkdir()
    for program in ("sh", "cat", "tr", "sleep", client):
        (programs / program).symlink_to(str(shutil.which(program)))
    (container,) = pod_of(render(CPU), "image-watch").containers
    (script,) = container["args"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    with served(pods, folder) as given:
        return subprocess.run(
            [
                *container["command"],
                script.replace(ACCOUNT, str(folder)).replace("sleep 2", "sleep 0.01"),
            ],
            env=environment | given | {"PATH": str(programs)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_an_image_that_no_node_can_pull_is_named(client: str, image: str, tmp_path: Path) -> None:
    pods = Pods(PULLING, FAILED)
    done = watched(pods, tmp_path, client)
    assert (done.returncode, done.stdout) == (
        1,
        f"error: no node can pull {image}; build it from Dockerfile.control, then push it and set "
        "global.imageRegistry, or load it into the nodes\n",
    )
    assert len(pods.asked) * 2 <= 30, "seconds"
    path, token = pods.asked[0]
    assert path.startswith(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=")
    assert token == "Bearer secret"


@pytest.mark.parametrize(
    ("states", "exit_code", "looks"),
    [
        ([BUSY] * 20 + [RUNNING], 0, 21),
        ([BUSY], 1, 100),
        ([failed("dial tcp: lookup registry.example.com: no such host", "ErrImagePull")], 1, 5),
        (
            [failed("pull access denied, repository does not exist or may require authorization")],
            1,
            5,
        ),
        (
            [failed("toomanyrequests: You have reached your unauthenticated pull rate limit")] * 7
            + [RUNNING],
            0,
            8,
        ),
        ([{"waiting": {"reason": "ErrImageNeverPull"}}], 1, 5),
    ],
)
def test_only_an_image_that_is_not_there_ends_the_install_early(
    states: list[Object], exit_code: int, looks: int, tmp_path: Path
) -> None:
    """A registry that is slow or busy is asked again by the node."""
    pods = Pods(*states)
    assert watched(pods, tmp_path, "curl").returncode == exit_code
    assert len(pods.asked) == looks


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_an_image_that_is_there_or_comes_late_is_no_failure(client: str, tmp_path: Path) -> None:
    pods = Pods(*[PULLING] * 20, FAILED, PULLING, RUNNING)
    done = watched(pods, tmp_path, client)
    assert (done.returncode, done.stdout) == (0, "")
    assert len(pods.asked) == 23


def test_an_api_server_that_refuses_keeps_no_install_from_its_work(
    image: str, tmp_path: Path
) -> None:
    begun = time.monotonic()
    done = watched(Pods(None), tmp_path, "curl")
    assert done.returncode == 0
    assert done.stdout == f"warning: the API server does not say whether {image} is there\n"
    assert time.monotonic() - begun < 60


def test_the_watched_pod_has_the_image_of_the_check_and_does_nothing() -> None:
    objects = render(CPU)
    (watched_container,), (check,) = (
        pod_of(objects, role).containers for role in ("image", "check")
    )
    assert watched_container["image"] == check["image"]
    assert watched_container["imagePullPolicy"] == check["imagePullPolicy"]
    (watch,) = pod_of(objects, "image-watch").containers
    assert watch["image"] == pod_of(objects, "redis").containers[-1]["image"]
    assert one(objects, "Role", "-image-watch")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    ]
    weights = {
        item["metadata"]["name"]: int(
            item["metadata"]["annotations"].get("helm.sh/hook-weight", "0")
        )
        for item in of_kind(objects, "Job")
        if "helm.sh/hook" in item["metadata"].get("annotations", {})
    }
    assert weights["demo-rollcast-image-watch"] < weights["demo-rollcast-check"]


NEVER = "registry.that-is-not.example.com:5000/team__a"


def test_a_pod_comes_first_whose_name_is_the_image_of_the_watcher() -> None:
    """Of a Pod that failed Helm prints the name alone; the API server's reason, where it refuses
    one, whole.
    """
    values = merged(CPU, {"global": {"imageRegistry": NEVER}})
    objects = render(values)
    pull, watch = one(objects, "Pod", "-alpine"), pod_of(objects, "image-watch")
    assert pull["metadata"]["name"] == (
        "demo-rollcast-pull-registry.that-is-not.example.com-5000-team-a-library-redis-7.2.7-alpine"
    )
    (container,), (watcher,) = pull["spec"]["containers"], watch.containers
    assert (container["image"], container["command"]) == (watcher["image"], ["true"])
    assert container["image"].startswith(NEVER)
    assert container["resources"] == watcher["resources"], (
        "what a quota refuses of one it refuses of all"
    )
    assert pull["spec"]["activeDeadlineSeconds"] == 30
    annotations = pull["metadata"]["annotations"]
    assert "hook-failed" in annotations["helm.sh/hook-delete-policy"]
    weights = {
        (item["kind"], item["metadata"]["name"]): int(
            item["metadata"]["annotations"].get("helm.sh/hook-weight", "0")
        )
        for item in objects
        if "pre-install" in item["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    }
    first = weights.pop(("Pod", pull["metadata"]["name"]))
    assert first < min(weights.values()), "if it is refused nothing is left"
    assert pull["spec"]["serviceAccountName"] == "default", "none of the chart's is there yet"


@pytest.mark.parametrize(
    "image",
    [
        {"registry": "", "repository": "redis", "tag": "8"},
        {"repository": "redis", "tag": "7..2"},
        {"registry": "[::1]:5000", "repository": "redis", "tag": "8"},
        {"registry": "10.0.0.7:5000", "repository": "a.b/c_d/e__f", "tag": "V1_2-.x"},
        {"repository": "valkey/valkey", "digest": "sha256:" + "0123456789abcdef" * 4},
        {"repository": "/".join(["long"] * 60), "tag": "1"},
    ],
)
def test_the_name_of_every_image_can_be_the_name_of_a_pod(image: Object, image_chart: Path) -> None:
    (pull,) = of_kind(render(merged(CPU, {"redis": {"image": image}}), path=image_chart), "Pod")
    name = pull["metadata"]["name"]
    assert len(name) <= 253
    assert all(re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", label) for label in name.split(".")), (
        name
    )
    assert name.startswith("demo-rollcast-pull-")


@pytest.fixture(scope="module")
def image_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart_of(tmp_path_factory.mktemp("chart"), "image.yaml")


def test_without_a_role_nothing_is_watched_and_without_redis_the_first_pod_alone() -> None:
    def kinds(change: Object) -> list[str]:
        objects = render(merged(CPU, change))
        return [
            item["kind"] for item in objects if re.search("-image|-pull-", item["metadata"]["name"])
        ]

    assert kinds({"hooks": {"watchImage": False}}) == []
    outside = {"redis": {"enabled": False, "external": {"host": "redis.example.com"}}}
    assert kinds(outside) == ["Pod"]
    (pull,) = of_kind(render(merged(CPU, outside)), "Pod", "-pull-rollcast-control-0.2.0")
    assert pull["spec"]["containers"][0]["image"] == "rollcast/control:0.2.0"
    assert pull["spec"]["activeDeadlineSeconds"] == 270


def test_the_notes_name_the_three_dockerfiles_while_no_registry_is_named() -> None:
    said = notes(CPU)
    assert all(f"Dockerfile.{image}" in said for image in ("control", "trainer", "generator"))
    assert "Dockerfile" not in notes(
        merged(CPU, {"global": {"imageRegistry": "registry.example.com"}})
    )
