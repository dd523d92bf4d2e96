"""A stand-in for an API server with the releases of a sweep: rendered objects whose trainers learn
while they are not suspended and have a generator.

Every call is allowed only by a rendered Role that is bound to the sweep's service account.
"""

from __future__ import annotations

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.chart.rendering import NAMESPACE, Object, of_kind, one

DRAIN_SECONDS = 0.1
"""Pods are there this long after they were asked to go, unless a test says otherwise."""
EVALUATION_SECONDS = 0.02


class SweptRelease:
    """The trainer and the generators of one run."""

    def __init__(self, objects: list[Object], ceiling: float) -> None:
        kind = "JobSet" if of_kind(objects, "JobSet") else "Job"
        (self.trainer,) = [
            item
            for item in of_kind(objects, kind)
            if item["metadata"]["labels"]["app.kubernetes.io/component"] == "trainer"
        ]
        self.trainer["metadata"]["uid"] = f"uid-{self.trainer['metadata']['name']}"
        self.generator = one(objects, "Deployment", "-generator")
        self.settings = one(objects, "ConfigMap", "-sweep")
        self.roles = {item["metadata"]["name"]: item for item in of_kind(objects, "Role")}
        self.bindings = of_kind(objects, "RoleBinding")
        self.run = self.settings["metadata"]["name"].removesuffix("-sweep")
        self.replicas = self.generator["spec"]["replicas"]
        self.is_active = not self.trainer["spec"].get("suspend", False)
        self.is_queued = self.settings["data"]["queued"] == "true"
        self.left_at = 0.0
        self.drain_seconds = DRAIN_SECONDS
        self.ceiling = ceiling
        self.seconds = 0.0
        """Time in which it trained."""
        self.waits_seconds = 0.0
        """How long its pods are Pending, or its Job waits for Kueue, whenever it is resumed."""
        self.resumed_at = 0.0
        self.held_waiting = False
        """Whether it had generators while its Job waited for Kueue."""
        self.last_tick = time.monotonic()
        self.failure: str | None = None
        self.reports = True
        """Whether its forecaster knows what it has spent."""
        self.is_forgotten = False
        """Whether its forecaster knows nothing of it while its trainer is away."""

    @property
    def is_ready(self) -> bool:
        """Whether the trainer's pods run."""
        waited_seconds = time.monotonic() - self.resumed_at
        return self.is_active and waited_seconds >= self.waits_seconds

    @property
    def has_pods(self) -> bool:
        return self.is_active or self.replicas > 0 or time.monotonic() < self.left_at

    def tick(self) -> None:
        now_seconds = time.monotonic()
        if self.is_queued and self.is_active and not self.is_ready and self.replicas:
            self.held_waiting = True
        if self.is_ready and self.replicas and self.failure is None:
            self.seconds += now_seconds - self.last_tick
        self.last_tick = now_seconds

    def points(self, devices: int) -> list[Object]:
        known = {"standard_error": 0.01, "trained_tokens": None, "samples": None, "start_up": 0.0}
        return [
            {
                "step": step,
                "incarnation": 1,
                "compute": step * EVALUATION_SECONDS * devices / 3600.0,
                "pass_rate": 0.1 + (self.ceiling - 0.1) * (1.0 - 0.95**step),
                "at": time.time(),
                "truncation_ratio": None,
                **known,
            }
            for step in range(int(self.seconds / EVALUATION_SECONDS) + 1)
        ]


class SweepCluster:
    """`with SweepCluster(...) as cluster`: `cluster.url` is an API server's and a forecaster's."""

    def __init__(self, releases: list[SweptRelease], account: str, folder: Path) -> None:
        self.releases = {release.run: release for release in releases}
        self._account = account
        self.folder = folder
        self.refused: list[str] = []
        self.most_training = 0
        """Runs that had pods at the same time."""
        self.is_away = False
        self.token_refused = False
        """By the forecasters."""
        self.lock = threading.Lock()

    def __enter__(self) -> SweepCluster:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_PATCH(self) -> None:
                assert self.headers["Content-Type"] == "application/merge-patch+json"
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                path = self.path
                with outer.lock:
                    for release in outer.releases.values():
                        release.tick()
                    if path.startswith("/api/runs/"):
                        status, answer = outer.forecast(path)
                    elif outer.is_away:
                        status, answer = 503, {}
                    elif self.headers["Authorization"] != "Bearer secret":
                        status, answer = 401, {}
                    else:
                        status, answer = outer.call(self.command, path, body)
                    training = sum(release.has_pods for release in outer.releases.values())
                    outer.most_training = max(outer.most_training, training)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        for release in self.releases.values():
            release.settings["data"]["forecaster"] = self.url
        (self.folder / "token").write_text("secret\n")
        (self.folder / "namespace").write_text(f"{NAMESPACE}\n")
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def forecast(self, path: str) -> tuple[int, Object]:
        _, _, _, run, question = path.split("/")
        if self.token_refused:
            return 401, {}
        release = self.releases[run]
        devices = int(release.settings["data"]["devices"])
        points = release.points(devices)
        if question == "status":
            spent = release.seconds * devices / 3600.0 if release.reports else None
            step = points[-1]["step"] if release.is_ready or not release.is_forgotten else None
            return 200, {"run": run, "step": step, "spent_device_hours": spent}
        return (200, {"run": run, "points": points}) if len(points) > 1 else (404, {})

    def call(self, method: str, path: str, body: Any) -> tuple[int, Object]:
        match = re.fullmatch(
            rf"/apis?/(?:(.+)/)?(v\w+)/namespaces/{NAMESPACE}/(\w+)(?:/([^/?]+))?(?:/(\w+))?(\?.*)?",
            path,
        )
        assert match, path
        group, _, kind, name, part, query = match.groups()
        resource = f"{kind}/{part}" if part else kind
        verb = {"GET": "get" if name else "list", "PATCH": "patch"}[method]
        if not self._is_allowed(verb, group or "", resource, name):
            self.refused.append(f"{verb} {resource} {name}")
            return 403, {}
        if kind == "workloads":
            return self._workload(method, name, query, body)
        for release in self.releases.values():
            if kind == "configmaps" and name == release.settings["metadata"]["name"]:
                return 200, release.settings
            if name == release.trainer["metadata"]["name"]:
                if body is not None and not release.is_queued:
                    self._set_active(release, active=not body["spec"]["suspend"])
                return 200, self._trainer(release)
            if resource == "deployments/scale" and name == release.generator["metadata"]["name"]:
                if body is not None:
                    if body["spec"]["replicas"] == 0 and release.replicas:
                        release.left_at = time.monotonic() + release.drain_seconds
                    release.replicas = body["spec"]["replicas"]
                return 200, {"status": {"replicas": int(time.monotonic() < release.left_at)}}
        return 404, {}

    def _set_active(self, release: SweptRelease, *, active: bool) -> None:
        if release.is_active and not active:
            release.left_at = time.monotonic() + release.drain_seconds
        if active and not release.is_active:
            release.resumed_at = time.monotonic()
        release.is_active = active

    def _trainer(self, release: SweptRelease) -> Object:
        has_pods = release.is_active or time.monotonic() < release.left_at
        counts = {"active": int(has_pods), "ready": int(release.is_ready)}
        status: Object = counts
        if release.trainer["kind"] == "JobSet":
            status = {"replicatedJobsStatus": [{"name": "trainer", **counts}]}
        if release.failure is not None and release.is_active:
            failed = {"type": "Failed", "status": "True", "message": release.failure}
            status = {"conditions": [failed]}
        is_admitted = release.is_ready if release.is_queued else release.is_active
        spec = {**release.trainer["spec"], "suspend": not is_admitted}
        return {**release.trainer, "spec": spec, "status": status}

    def _workload(
        self, method: str, name: str | None, query: str | None, body: Any
    ) -> tuple[int, Object]:
        for release in self.releases.values():
            own_name = f"job-{release.run}"
            if name == own_name or (query or "").endswith(f"={release.trainer['metadata']['uid']}"):
                if method == "PATCH":
                    self._set_active(release, active=body["spec"]["active"])
                workload = {
                    "metadata": {"name": own_name},
                    "spec": {"active": release.is_active},
                }
                return 200, workload if name else {"items": [workload]}
        return 404, {}

    def _is_allowed(self, verb: str, group: str, resource: str, name: str | None) -> bool:
        for release in self.releases.values():
            for binding in release.bindings:
                subjects = [subject["name"] for subject in binding["subjects"]]
                if self._account not in subjects:
                    continue
                for rule in release.roles[binding["roleRef"]["name"]]["rules"]:
                    if (
                        verb in rule["verbs"]
                        and group in rule["apiGroups"]
                        and resource in rule["resources"]
                        and ("resourceNames" not in rule or name in rule["resourceNames"])
                    ):
                        return True
        return False
