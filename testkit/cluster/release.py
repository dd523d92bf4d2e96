"""One release of the chart on a cluster, and what can be asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rollcast.config.errors import EXIT_SUPERSEDED
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import parse_page
from testkit.cluster.tools import CHART, Cluster, Refuted, has_condition

VALUES = (CHART / "values-cpu.yaml", Path(__file__).with_name("values.yaml"))
ROLES = ("trainer", "generator", "redis", "forecaster", "autoscaler", "grader")
DEPLOYED = ("generator", "forecaster", "autoscaler", "grader")
READY_SECONDS = 900.0
STEP_SECONDS = 600.0
READYZ = "http://127.0.0.1:8401/readyz"
PAGES = {
    "trainer": "http://127.0.0.1:8080/metrics",
    "generator": "http://127.0.0.1:8080/metrics",
    "forecaster": "http://127.0.0.1:8400/metrics",
    "autoscaler": "http://127.0.0.1:8401/metrics",
}


class Release:
    """A release of the CPU profile with the values of this folder."""

    def __init__(self, cluster: Cluster, name: str, *values: str) -> None:
        """values: further values, as for --set; config.run if the namespace has one."""
        self.cluster = cluster
        self.name = name
        self.full = f"{name}-rollcast"
        self._values = values

    def install(self, parts: Mapping[str, object] | None = None) -> None:
        """parts: further values, by their paths."""
        self.cluster.helm(*self._install(), *_parts(parts), seconds=READY_SECONDS)

    def refused_install(self, *values: str) -> str:
        """An install with these values on top that must fail; what helm said."""
        return self.cluster.refuses(*self._install(), *_set(*values), seconds=READY_SECONDS)

    def upgrade(self, *values: str, takes_over: bool = False) -> None:
        """Upgrade with its values and these on top. takes_over: also fields that an autoscaler has
        scaled.
        """
        force = self.cluster.takes_over if takes_over else []
        self.cluster.helm(*self._upgrade(*values), *force, seconds=READY_SECONDS)

    def refused_upgrade(self, *values: str, parts: Mapping[str, object] | None = None) -> str:
        """An upgrade that must fail; what helm said. parts: as of `install`."""
        return self.cluster.refuses(*self._upgrade(*values), *_parts(parts), seconds=READY_SECONDS)

    def roll_back(self, revision: int) -> None:
        arguments = ("rollback", self.name, str(revision), *self.cluster.takes_over)
        self.cluster.helm(*arguments, seconds=READY_SECONDS)

    def former_revisions(self) -> list[int]:
        """Revisions that Helm keeps and that were deployed before the present one."""
        return self._revisions("superseded")

    def deployed_revision(self) -> int:
        """The newest that was installed, upgraded or rolled back to without a failure."""
        return max(self._revisions("deployed"), default=1)

    def _revisions(self, status: str) -> list[int]:
        history = json.loads(self.cluster.helm("history", self.name, "-o", "json") or "[]")
        return [int(row["revision"]) for row in history if row["status"] == status]

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", self.name, seconds=READY_SECONDS)

    def labels(self, role: str | None = None) -> str:
        component = "" if role is None else f",app.kubernetes.io/component={role}"
        return f"app.kubernetes.io/instance={self.name}{component}"

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Pods that have not ended."""
        release_pods = self.cluster.objects("pods", self.labels(role))
        return [pod for pod in release_pods if pod["status"]["phase"] in ("Pending", "Running")]

    def first_pod(self, role: str) -> str:
        """Name of one of them."""
        return next((str(pod["metadata"]["name"]) for pod in self.pods(role)), "POD")

    def uids(self) -> dict[str, set[str]]:
        """Role -> its pods, by uid."""
        return {role: {pod["metadata"]["uid"] for pod in self.pods(role)} for role in ROLES}

    def image(self, role: str) -> str:
        """Log of the main container of a pod of that role."""
        pods = self.pods(role)
        return str(pods[0]["spec"]["containers"][0]["image"]) if pods else "IMAGE"

    def is_ready(self, role: str) -> bool:
        pods = self.pods(role)
        return bool(pods) and all(has_condition(pod, "Ready") for pod in pods)

    def wait_replaced(
        self, role: str, uids_before: set[str], seconds: float = READY_SECONDS
    ) -> None:
        """A pod of that role has another uid than these."""
        self.cluster.until(f"another {role}", seconds, lambda: self.uids()[role] - uids_before)

    def wait_ready(self, *roles: str) -> None:
        """Deployments have rolled out, and pods are ready."""
        for role in roles:
            if role in DEPLOYED:
                patience = f"--timeout={READY_SECONDS:.0f}s"
                status = ("rollout", "status", f"deployment/{self.full}-{role}", patience)
                self.cluster.kubectl(*status, seconds=READY_SECONDS + 20)
            self.cluster.until(f"{role} is ready", READY_SECONDS, partial(self.is_ready, role))

    def generators_asked_for(self) -> int:
        """By the Deployment."""
        deployment = self.cluster.read("get", "deployment", f"{self.full}-generator")
        return int(deployment.get("spec", {}).get("replicas", 0))

    def reasons(self) -> set[str]:
        """Messages of the events of the generators' Deployment."""
        selected = f"involvedObject.kind=Deployment,involvedObject.name={self.full}-generator"
        events = self.cluster.read("get", "events", "--field-selector", selected)
        return {event["reason"] for event in events.get("items", [])}

    def page(self, role: str, address: str = "") -> str:
        """Page of a pod of that role, by default its metrics, read from inside: policies do not
        matter there.
        """
        return self._page(role, self.first_pod(role), address or PAGES[role])

    def metric(self, role: str, metric: Metric) -> float | None:
        """The largest value of a metric on the page of one pod of that role; None = it lacks the
        metric.
        """
        metric_values = []
        for pod in self.pods(role):
            try:
                page = self._page(role, pod["metadata"]["name"], PAGES[role])
            except Refuted:
                continue  # it starts or ends
            metric_values += [
                sample.value for sample in parse_page(page) if sample.name == metric.name
            ]
        return max(metric_values, default=None)

    def step(self) -> float | None:
        """Step of the trainer; None while its page cannot be read."""
        return self.metric("trainer", trainer_metrics.TRAINER_STEP)

    def goes_on(self) -> None:
        """The trainer makes a step: one more than the lowest seen from now on, for it may resume an
        earlier one.
        """
        lowest: list[float] = []

        def has_advanced() -> bool:
            step = self.step()
            if step is None:
                return False
            lowest[:] = [min([step, *lowest])]
            return step > lowest[0]

        self.cluster.until("another step", STEP_SECONDS, has_advanced)

    def trainer_jobs(self) -> dict[str, str]:
        """Name of each trainer's Job -> "Complete", "Failed", "superseded" (for another's sake), or
        "" at work.
        """
        return {
            job["metadata"]["name"]: _end(job["status"].get("conditions", []))
            for job in self.cluster.objects("jobs", self.labels("trainer"))
        }

    def has_one_trainer(self) -> None:
        """Raises Refuted where two trainers live after a while: they would hold devices, and
        compete for the run.
        """

        def alone() -> bool:
            at_work = [name for name, end in self.trainer_jobs().items() if not end]
            return len(at_work) <= 1 and len(self.pods("trainer")) <= 1

        self.cluster.until("one trainer", STEP_SECONDS, alone)

    def _page(self, role: str, pod: str, address: str) -> str:
        program = (
            f"import urllib.request; print(urllib.request.urlopen({address!r}, "
            "timeout=20).read().decode())"
        )
        return self.cluster.kubectl("exec", pod, "-c", role, "--", "python", "-c", program)

    def _install(self) -> list[str]:
        files = [word for path in VALUES for word in ("-f", str(path))]
        return ["install", self.name, str(CHART), *files, *_set(*self._values)]

    def _upgrade(self, *values: str) -> list[str]:
        return ["upgrade", self.name, str(CHART), "--reuse-values", *_set(*values)]


def _set(*values: str) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def _parts(parts: Mapping[str, object] | None) -> list[str]:
    return [
        word
        for path, value in (parts or {}).items()
        for word in ("--set-json", f"{path}={json.dumps(value)}")
    ]


def _end(conditions: list[dict[str, Any]]) -> str:
    """How a Job ended; "" = it has not."""
    for entry in conditions:
        if entry["type"] in ("Complete", "Failed") and entry["status"] == "True":
            code = f"failed with exit code {EXIT_SUPERSEDED} "
            return "superseded" if code in entry.get("message", "") else str(entry["type"])
    return ""
