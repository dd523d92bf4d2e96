"""One release of the chart on a cluster, and what can be asked of it."""

from __future__ import annotations

from functools import partial
from typing import Any

from rollcast.telemetry import names
from rollcast.telemetry.names import Metric
from rollcast.telemetry.prometheus_reader import parse_page
from testkit.cluster.tools import CHART, Cluster, Refuted

ROLES = ("trainer", "generator", "redis", "forecaster", "autoscaler")
READY_SECONDS = 900.0
STEP_SECONDS = 600.0
VALUES = ("config.budget.steps=2000", "trainer.ttlSecondsAfterFinished=86400")
"""The demo's task, long enough to be disturbed."""
PAGES = {
    "trainer": "http://127.0.0.1:8080/metrics",
    "generator": "http://127.0.0.1:8080/metrics",
    "forecaster": "http://127.0.0.1:8400/metrics",
    "autoscaler": "http://127.0.0.1:8401/metrics",
}


class Release:
    """A release of the CPU profile."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.full = f"{name}-rollcast"

    def install(self) -> None:
        self.cluster.helm("install", self.name, str(CHART), *self._values(*VALUES), seconds=READY_SECONDS)

    def upgrade(self, *values: str, seconds: float = READY_SECONDS) -> None:
        """With what it has and these on top."""
        self.cluster.helm("upgrade", self.name, str(CHART), "--reuse-values", *self._set(*values), seconds=seconds)

    def refused_upgrade(self, *values: str) -> str:
        """An upgrade that must fail; what helm said."""
        return self.cluster.refuses(
            "upgrade", self.name, str(CHART), "--reuse-values", *self._set(*values), seconds=READY_SECONDS
        )

    def uninstall(self) -> None:
        self.cluster.helm("uninstall", self.name, "--wait", seconds=READY_SECONDS)

    def labels(self, role: str | None = None) -> str:
        own = f"app.kubernetes.io/instance={self.name}"
        return own if role is None else f"{own},app.kubernetes.io/component={role}"

    def pods(self, role: str) -> list[dict[str, Any]]:
        """Pods that have not ended."""
        found = self.cluster.objects("pods", self.labels(role))
        return [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]

    def uids(self) -> dict[str, set[str]]:
        """Role -> its pods, by uid."""
        return {role: {pod["metadata"]["uid"] for pod in self.pods(role)} for role in ROLES}

    def is_ready(self, role: str) -> bool:
        pods = self.pods(role)
        return bool(pods) and all(
            any(entry["type"] == "Ready" and entry["status"] == "True" for entry in pod["status"].get("conditions", []))
            for pod in pods
        )

    def has_another(self, role: str, than: set[str]) -> bool:
        """Whether a pod of that role is none of these uids."""
        return bool(self.uids()[role] - than)

    def wait_ready(self, *roles: str) -> None:
        for role in roles:
            self.cluster.until(f"{role} is ready", READY_SECONDS, partial(self.is_ready, role))

    def metric(self, role: str, metric: Metric) -> float | None:
        """The largest value of a metric on the page of one pod of that role; None = it has none."""
        found = []
        for pod in self.pods(role):
            try:
                page = self._page(role, pod["metadata"]["name"])
            except Refuted:
                continue  # it starts or ends
            found += [sample.value for sample in parse_page(page) if sample.name == metric.name]
        return max(found, default=None)

    def step(self) -> float | None:
        """Of the trainer; None while its page cannot be read."""
        return self.metric("trainer", names.TRAINER_STEP)

    def goes_on(self) -> None:
        """The trainer makes a step: one more than the lowest seen from now on, for it may resume an earlier one."""
        lowest: list[float] = []

        def advanced() -> bool:
            step = self.step()
            if step is None:
                return False
            lowest[:] = [min([step, *lowest])]
            return step > lowest[0]

        self.cluster.until("another step", STEP_SECONDS, advanced)

    def trainer_jobs(self) -> list[str]:
        """Names of Jobs that are not finished."""
        jobs = self.cluster.objects("jobs", self.labels("trainer"))
        return [job["metadata"]["name"] for job in jobs if not job["status"].get("conditions")]

    def has_one_trainer(self) -> None:
        """Raises Refuted where two trainers live after a while: they would hold devices, and compete for the run."""
        self.cluster.until(
            "one trainer", STEP_SECONDS, lambda: len(self.trainer_jobs()) <= 1 and len(self.pods("trainer")) <= 1
        )

    def _page(self, role: str, pod: str) -> str:
        """A metrics page, read from inside of the pod: policies of the network do not matter there."""
        program = f"import urllib.request; print(urllib.request.urlopen('{PAGES[role]}', timeout=20).read().decode())"
        return self.cluster.kubectl("exec", pod, "-c", role, "--", "python", "-c", program)

    def _values(self, *values: str) -> list[str]:
        return ["-f", str(CHART / "values-cpu.yaml"), *self._set(*values)]

    def _set(self, *values: str) -> list[str]:
        return [word for value in values for word in ("--set", value)]
