"""A stand-in for a cluster's API server: a real HTTP server with the few paths that the autoscaler
and the hooks use.

It keeps one Deployment with its pods, HPAs, ScaledObjects, Jobs and JobSets as plain objects,
checks methods, content types and selectors, and pages lists, as the API server does. No cluster is
to be had here; what it does not check, nobody did.
"""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

NAMESPACE, NAME = "train", "rollcast-generator"
SCALE = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{NAME}/scale"
HPAS = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"
SCALED_OBJECTS = f"/apis/keda.sh/v1alpha1/namespaces/{NAMESPACE}/scaledobjects"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
JOBSETS = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{NAMESPACE}/jobsets"
RECORD = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}-replaced-job"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"
UID = "6b1c1d0e-0000-4000-8000-000000000001"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SELECTOR = "app.kubernetes.io/name=rollcast,app.kubernetes.io/component=generator"


class ApiServer:
    """`with ApiServer() as server`: `server.log` has every request, as (method, path)."""

    def __init__(self) -> None:
        self.replicas = 3
        self.pods: dict[str, dict[str, Any]] = {}
        self.hpas: list[dict[str, Any]] = []
        self.scaled_objects: list[dict[str, Any]] | None = None
        """None = KEDA's resource is not known."""
        self.jobs: list[dict[str, Any]] = []
        self.jobsets: list[dict[str, Any]] | None = None
        """None = JobSet's resource is not known."""
        self.hooks: dict[str, dict[str, Any]] = {}
        """Path -> an object of another kind, of which only its deletion is known here."""
        self.refused_pods: dict[str, tuple[int, str]] = {}
        """Role -> status and message with which a dry run of its pod is answered."""
        self.dry_runs: list[dict[str, Any]] = []
        self.recorded: dict[str, str] = {}
        """Data of the ConfigMap that the chart makes for the autoscaler."""
        self.job_dry_run: tuple[int, Any] = (201, {})
        self.events: list[dict[str, Any]] = []
        self.refuse: dict[str, int] = {}
        """Path -> status that it answers with."""
        self.log: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        for number in range(3):
            self.add_pod(f"pod-{number}", f"10.0.0.{number}")
        self.add_pod("trainer-0", "10.0.1.0", component="trainer")

    def add_pod(self, name: str, address: str, component: str = "generator") -> None:
        self.pods[name] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/name": "rollcast",
                    "app.kubernetes.io/component": component,
                },
            },
            "spec": {"containers": []},
            "status": {"podIP": address, "phase": "Running"},
        }

    def costs(self) -> dict[str, str]:
        """Deletion costs by pod, of those that have one."""
        key = "controller.kubernetes.io/pod-deletion-cost"
        found = {
            name: pod["metadata"].get("annotations", {}).get(key) for name, pod in self.pods.items()
        }
        return {name: cost for name, cost in found.items() if cost is not None}

    def patches(self) -> list[str]:
        return [path for method, path in self.log if method == "PATCH"]

    def kubeconfig(self, folder: Path) -> Path:
        """The file that KUBECONFIG may name."""
        named = {"name": "here"}
        path = folder / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "clusters": [{**named, "cluster": {"server": self.url}}],
                    "users": [{**named, "user": {"token": "secret"}}],
                    "contexts": [{**named, "context": {"cluster": "here", "user": "here"}}],
                }
            )
        )
        return path

    def __enter__(self) -> ApiServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(None)

            def do_DELETE(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                self._answer(json.loads(self.rfile.read(size)) if size else None)

            def do_POST(self) -> None:
                self.do_PATCH()

            def do_PATCH(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                url = urlsplit(self.path)
                with outer.lock:
                    outer.log.append((self.command, url.path))
                    query = {name: values[0] for name, values in parse_qs(url.query).items()}
                    if self.headers.get("Authorization", "").lower() != "bearer secret":
                        status, answer = 401, {"kind": "Status", "reason": "Unauthorized"}
                    elif self.command == "PATCH" and self.headers["Content-Type"] != patch_type(
                        url.path
                    ):
                        status, answer = 415, {"kind": "Status", "reason": "UnsupportedMediaType"}
                    else:
                        status, answer = outer.answer(self.command, url.path, query, body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path in self.refuse:
            return self.refuse[path], {"kind": "Status", "reason": "Refused"}
        if path == SCALE:
            if method == "PATCH":
                self.replicas = body["spec"]["replicas"]
            return 200, {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": NAME, "namespace": NAMESPACE, "uid": UID},
                "spec": {"replicas": self.replicas} if self.replicas else {},
                "status": {"replicas": len(self.pods), "selector": SELECTOR},
            }
        if method == "GET" and path == HPAS:
            return 200, self._page(
                "autoscaling/v2", "HorizontalPodAutoscalerList", self.hpas, query
            )
        if method == "GET" and path == SCALED_OBJECTS and self.scaled_objects is not None:
            return 200, self._page(
                "keda.sh/v1alpha1", "ScaledObjectList", self.scaled_objects, query
            )
        if method in ("GET", "PATCH") and path == RECORD:
            changed = self.recorded | (body["data"] if method == "PATCH" else {})
            self.recorded = {key: text for key, text in changed.items() if text is not None}
            return 200, {"kind": "ConfigMap", "apiVersion": "v1", "data": self.recorded or None}
        if method == "GET" and path in (PODS, JOBS):
            wanted = dict(pair.split("=") for pair in query["labelSelector"].split(","))
            version, kind, items = ("v1", "PodList", [*self.pods.values()]) if path == PODS else (
                "batch/v1", "JobList", self.jobs)  # fmt: skip
            chosen = [
                item for item in items if wanted.items() <= item["metadata"]["labels"].items()
            ]
            return 200, self._page(version, kind, chosen, query)
        if method == "DELETE" and path in self.hooks:
            deleted = self.hooks.pop(path)
            returned = deleted["kind"] in ("Pod", "ServiceAccount")
            return 200, deleted if returned else {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Success",
            }
        if method == "POST" and path == PODS:
            return self._dry_run(query, body)
        if method == "DELETE" and (path == JOBS or (path == JOBSETS and self.jobsets is not None)):
            return self._delete(path, query)
        if method == "DELETE" and (
            found := re.fullmatch(rf"({JOBS}|{JOBSETS})/([-a-z0-9]+)", path)
        ):
            return self._delete_one(
                found[1], found[2], query, (body or {}).get("preconditions", {})
            )
        if method == "POST" and path == JOBS and query.get("dryRun") == "All":
            return self.job_dry_run
        if method == "POST" and path == JOBS:
            return self._create_job(body, {"manager": query["fieldManager"], "operation": "Update"})
        if (
            method == "PATCH"
            and path.startswith(f"{JOBS}/")
            and query.get("force", "").lower() == "true"
        ):
            return self._create_job(body, {"manager": query["fieldManager"], "operation": "Apply"})
        if (
            method == "PATCH"
            and (found := re.fullmatch(rf"{PODS}/([-a-z0-9]+)", path))
            and found[1] in self.pods
        ):
            pod = self.pods[found[1]]
            pod["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
            return 200, pod
        if method == "POST" and path == EVENTS:
            if (wrong := _wrong_event(body)) is not None:
                return 422, {"kind": "Status", "reason": "Invalid", "message": wrong}
            self.events.append(body)
            return 201, body
        return 404, {"kind": "Status", "reason": "NotFound"}

    def _dry_run(self, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if (query.get("dryRun"), query.get("fieldValidation")) != ("All", "Strict"):
            return 403, {"kind": "Status", "message": "no pod may be made in earnest"}
        self.dry_runs.append(body)
        status, message = self.refused_pods.get(
            body["metadata"]["labels"]["app.kubernetes.io/component"], (201, "")
        )
        return (201, body) if status == 201 else (status, {"kind": "Status", "message": message})

    def _delete(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """What has the labels, and all of it without any; the answer is a list of what went."""
        if query.get("propagationPolicy") != "Background":
            return 409, {
                "kind": "Status",
                "reason": "Conflict",
                "message": "pods of a Job would be orphaned",
            }
        wanted = (
            dict(pair.split("=") for pair in query["labelSelector"].split(","))
            if "labelSelector" in query
            else {}
        )
        items = self.jobs if path == JOBS else self.jobsets or []
        gone = [item for item in items if wanted.items() <= item["metadata"]["labels"].items()]
        items[:] = [item for item in items if item not in gone]
        kind, version = (
            ("JobList", "batch/v1") if path == JOBS else ("JobSetList", "jobset.x-k8s.io/v1alpha2")
        )
        return 200, {"apiVersion": version, "kind": kind, "metadata": {}, "items": gone}

    def _delete_one(
        self, path: str, name: str, query: dict[str, str], expected: dict[str, str]
    ) -> tuple[int, Any]:
        if query.get("propagationPolicy") != "Background":
            return 409, {
                "kind": "Status",
                "reason": "Conflict",
                "message": "pods of a Job would be orphaned",
            }
        items = self.jobs if path == JOBS else self.jobsets or []
        gone = [item for item in items if item["metadata"]["name"] == name]
        if any(
            item["metadata"].get(key) != value for item in gone for key, value in expected.items()
        ):
            return 409, {"kind": "Status", "reason": "Conflict", "message": "Precondition failed"}
        items[:] = [item for item in items if item not in gone]
        return (
            (200, {"kind": "Status", "status": "Success"})
            if gone
            else (404, {"reason": "NotFound"})
        )

    def _create_job(self, body: dict[str, Any], manager: dict[str, str]) -> tuple[int, Any]:
        """Refuses what the API server would: its own fields, and a name that is taken."""
        metadata, template = body["metadata"], body["spec"]["template"]["metadata"]["labels"]
        if metadata["name"] in [item["metadata"]["name"] for item in self.jobs]:
            return 409, {"kind": "Status", "reason": "AlreadyExists"}
        own = {"uid", "resourceVersion", "creationTimestamp", "managedFields"} & set(metadata)
        if (
            own
            or "status" in body
            or "selector" in body["spec"]
            or any("controller-uid" in name for name in template)
        ):
            return 422, {"kind": "Status", "reason": "Invalid"}
        uid = f"created-{len(self.log)}"
        made = {**metadata, "uid": uid, "resourceVersion": uid, "managedFields": [manager]}
        template |= {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
        spec = {
            **body["spec"],
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
        }
        self.jobs.append({**body, "metadata": made, "spec": spec, "status": {}})
        return 201, self.jobs[-1]

    def _page(
        self, version: str, kind: str, items: list[Any], query: dict[str, str]
    ) -> dict[str, Any]:
        """At most two a page, however many are asked for: a server may do so."""
        start = int(query.get("continue", 0))
        metadata = {"continue": str(start + 2)} if start + 2 < len(items) else {}
        return {
            "apiVersion": version,
            "kind": kind,
            "metadata": metadata,
            "items": items[start : start + 2],
        }


def patch_type(path: str) -> str:
    """The content type of the patches that are used: Jobs are applied, the rest is merged."""
    return f"application/{'apply-patch+yaml' if path.startswith(JOBS) else 'merge-patch+json'}"


def _wrong_event(event: dict[str, Any]) -> str | None:
    """What the API server's validation of events (pkg/apis/core/validation/events.go) would
    refuse.
    """
    if (
        event["involvedObject"]["namespace"] != NAMESPACE
        or event["metadata"]["namespace"] != NAMESPACE
    ):
        return "involvedObject.namespace does not match event.namespace"
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", event["metadata"]["name"]):
        return "metadata.name is no DNS subdomain"
    if (
        event["type"] not in ("Normal", "Warning")
        or len(event["reason"]) > 128
        or len(event["message"]) > 1024
    ):
        return "type, reason or message"
    return None


def job(name: str, *conditions: tuple[str, ...], component: str = "trainer") -> dict[str, Any]:
    """A Job with conditions as (type, status), or (type, status, message)."""
    labels = {"app.kubernetes.io/instance": "demo", "app.kubernetes.io/component": component}
    stated = [
        dict(zip(("type", "status", "message"), condition, strict=False))
        for condition in conditions
    ]
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": stated} if stated else {},
    }


def hpa(name: str, target: str, kind: str = "Deployment") -> dict[str, Any]:
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": target},
        "maxReplicas": 4,
    }
    return {"metadata": {"name": name}, "spec": spec}


def scaled_object(name: str, target: str, **reference: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"scaleTargetRef": {"name": target, **reference}}}
